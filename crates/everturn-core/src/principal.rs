//! The principal: an identified caller.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{Context, Error, FromContext, HandlerResult, Scope, hex};

/// An identified caller. A call sees only the sessions of its principal's tenant, and the calls of a
/// principal are counted together.
///
/// A principal is its own tenant unless it is [in another](Principal::in_tenant). Two principals are equal if
/// their ids are. Tools, flows and turn loops take it as an argument:
///
/// ```
/// use everturn_core::{Principal, Registry, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let whoami = Registry::new().define_flow("whoami", |(): (), caller: Principal| async move {
///     Ok(caller.id().to_owned())
/// })?;
///
/// // Work on behalf of a customer:
/// let alice = Principal::new("alice");
/// assert_eq!(alice.context().scope(whoami.run(())).await?, "alice");
/// # Ok(()) }
/// ```
#[derive(Clone, Serialize, Deserialize)]
pub struct Principal {
    id: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "is_empty")]
    roles: Arc<[Arc<str>]>,
}

impl Principal {
    /// Returns the principal of an id, without roles.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            tenant: None,
            roles: Arc::default(),
        }
    }

    /// Adds a role, such as `staff`.
    ///
    /// ```
    /// use everturn_core::Principal;
    ///
    /// let bob = Principal::new("bob").with_role("staff");
    ///
    /// assert!(bob.has_role("staff"));
    /// assert!(!bob.has_role("operator"));
    /// ```
    #[must_use]
    pub fn with_role(mut self, role: impl Into<Arc<str>>) -> Self {
        let role = role.into();
        if !self.has_role(&role) {
            self.roles = self.roles.iter().cloned().chain([role]).collect();
        }
        self
    }

    /// Sets the tenant whose sessions the principal's calls see: an organisation with several users, or the
    /// customer on whose behalf an employee acts. By default the tenant has the principal's id as its name.
    ///
    /// ```
    /// use everturn_core::Principal;
    ///
    /// let staff = Principal::new("bob").with_role("staff").in_tenant("alice");
    ///
    /// assert_eq!(staff.scope(), Principal::new("alice").scope());
    /// assert_eq!(staff, Principal::new("bob"));
    /// ```
    #[must_use]
    pub fn in_tenant(mut self, tenant: impl Into<Arc<str>>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the name of the tenant whose sessions this principal's calls see.
    pub fn tenant(&self) -> &str {
        self.tenant.as_ref().unwrap_or(&self.id)
    }

    /// Returns the roles.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.roles.iter().map(AsRef::as_ref)
    }

    /// Returns whether the principal has a role.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles().any(|known| known == role)
    }

    /// Returns the tenant whose sessions this principal's calls see, in the form that stores use.
    ///
    /// The scope is a hash of the tenant's name: names may have any characters and any length, while scopes
    /// become folder names, on file systems that may not distinguish `Alice` from `alice`. The scope carries
    /// the name, which stores keep together with the hash.
    pub fn scope(&self) -> Scope {
        let digest = Sha256::digest(self.tenant().as_bytes());
        Scope::new(format!("principal-{}", hex(&digest[..20])))
            .with_tenant(Arc::clone(self.tenant.as_ref().unwrap_or(&self.id)))
    }

    /// Returns a context for work on behalf of this principal, as a server creates it for the principal's
    /// calls. It has the principal's tenant, and the principal's id and roles as the value `auth`.
    pub fn context(&self) -> Context {
        let mut auth = Map::new();
        auth.insert("principal".to_owned(), self.id().into());
        if !self.roles.is_empty() {
            auth.insert("roles".to_owned(), self.roles().collect());
        }
        self.enter(Context::new().with_value("auth", Value::Object(auth)))
    }

    /// Sets the principal of a context. The context keeps its values.
    #[must_use]
    pub fn enter(&self, context: Context) -> Context {
        context.with(self.scope()).with(self.clone())
    }

    /// Returns the principal on whose behalf a context's work runs; `None` if the caller was not identified.
    ///
    /// Its roles come from the value `auth` of the context: the field `role` and the list `roles`.
    pub fn of(context: &Context) -> Option<Self> {
        let principal = context.extension::<Self>()?;
        Some(roles_given_to(context).fold(Self::clone(&principal), Self::with_role))
    }
}

/// Marks the context of a client, identified or not.
#[derive(Debug, Clone, Copy)]
struct OfClient;

/// Marks the context of a caller who named the tenant.
#[derive(Debug, Clone, Copy)]
struct NamedTenant;

impl Context {
    /// Marks work on behalf of a client, which does not have the rights of the program itself. A server with
    /// context providers marks each of its calls.
    #[must_use]
    pub fn for_client(self) -> Self {
        self.with(OfClient)
    }

    /// Returns whether the work is on behalf of a client: an identified one, which is a [`Principal`], or one
    /// that is [marked](Context::for_client).
    pub fn is_for_client(&self) -> bool {
        self.extension::<Principal>().is_some() || self.extension::<OfClient>().is_some()
    }

    /// Marks work of a caller who named its tenant in the request, where the name may be mistyped.
    #[must_use]
    pub fn with_named_tenant(self) -> Self {
        self.with(NamedTenant)
    }

    /// Returns whether the caller [named](Context::with_named_tenant) the tenant in the request.
    pub fn has_named_tenant(&self) -> bool {
        self.extension::<NamedTenant>().is_some()
    }

    /// Returns whether the caller has a role: its [principal](Principal::has_role) has it, or the value
    /// `auth` names it as its `role` or in the list of its `roles`.
    pub fn has_role(&self, role: &str) -> bool {
        let principal = self.extension::<Principal>();
        principal.is_some_and(|principal| principal.has_role(role))
            || roles_given_to(self).any(|known| known == role)
    }
}

/// Returns the roles in the value `auth` of a context.
fn roles_given_to(context: &Context) -> impl Iterator<Item = &str> {
    let auth = context.auth();
    let listed = auth.and_then(|auth| auth.get("roles")?.as_array());
    let only = auth.and_then(|auth| auth.get("role"));
    listed.into_iter().flatten().chain(only).filter_map(Value::as_str)
}

fn is_empty(roles: &Arc<[Arc<str>]>) -> bool {
    roles.is_empty()
}

crate::macros::compared_by!(Principal, id);

crate::conversions! {
    From<&Principal> for Context: |principal| principal.context();
    From<Principal> for Context: |principal| principal.context();
}

/// The caller. `UNAUTHENTICATED` if the caller was not identified.
impl FromContext for Principal {
    fn from_context(context: &Context) -> HandlerResult<Self> {
        let missing = || Error::unauthenticated("the call needs an identified caller").with_public();
        Ok(Self::of(context).ok_or_else(missing)?)
    }
}

/// The caller, if it was identified.
impl FromContext for Option<Principal> {
    fn from_context(context: &Context) -> HandlerResult<Self> {
        Ok(Principal::of(context))
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({:?}", self.id)?;
        if let Some(tenant) = &self.tenant {
            write!(f, " in {tenant:?}")?;
        }
        f.write_str(")")
    }
}
