//! Context providers, which identify the caller of a request and provide values for the context of its
//! actions.

mod combined;
#[cfg(feature = "jwt")]
#[cfg(feature = "jwt")]
mod jwks;
#[cfg(feature = "jwt")]
mod jwt;
mod secrets;

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::{HeaderMap, HeaderName, Method};
use everturn_core::{Context, HandlerResult};
use serde_json::{Map, Value};

use self::combined::{ActingFor, All, AnyOf};
#[cfg(feature = "jwt")]
pub use self::jwks::Jwks;
#[cfg(feature = "jwt")]
pub use self::jwt::{JwtTokens, PrincipalId};
pub use self::secrets::{ApiKeys, BearerTokens};
use crate::Principal;

/// A request as context providers see it. Its body is parsed, and no action has run.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CallRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path, without the query.
    pub path: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The input: `data` of the body.
    pub input: Option<&'a Value>,
}

impl<'a> CallRequest<'a> {
    /// Returns a request without an input, for testing providers.
    pub fn new(method: &'a Method, path: &'a str, headers: &'a HeaderMap) -> Self {
        Self {
            method,
            path,
            headers,
            input: None,
        }
    }
}

impl CallRequest<'_> {
    /// Returns the value of a header, if the header is sent once and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        value.to_str().ok()
    }

    /// Returns the token of an `Authorization: Bearer` header.
    pub fn bearer_token(&self) -> Option<&str> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    }
}

/// Adds a value to a context.
type Give = Arc<dyn Fn(Context) -> Context + Send + Sync>;

/// The answer of a provider: values for the context, and the principal.
///
/// A server rejects a call whose caller has neither a [principal](Provided::with_principal) nor was declared
/// [anonymous](Provided::anonymous): without a tenant, all callers would share their sessions.
#[derive(Clone, Default)]
#[must_use]
pub struct Provided {
    pub(crate) values: Map<String, Value>,
    pub(crate) given: Vec<Give>,
    pub(crate) principal: Option<Principal>,
    /// The tenant that anonymous callers share.
    pub(crate) anonymous: Option<Arc<str>>,
}

impl Provided {
    /// Creates an answer without values and without a principal.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the answer for a caller that is not identified. All anonymous callers share the sessions of
    /// `tenant`: each can list, read and continue those of the others. A principal with that id shares them
    /// too.
    ///
    /// Functions that take a `Principal` reject anonymous callers. Limits count them by address.
    ///
    /// ```
    /// use everturn_server::{Provided, context_fn};
    ///
    /// let visitors = context_fn(|_| Ok(Provided::anonymous("visitors")));
    /// # let _ = visitors;
    /// ```
    pub fn anonymous(tenant: impl Into<Arc<str>>) -> Self {
        Self {
            anonymous: Some(tenant.into()),
            ..Self::default()
        }
    }

    everturn_core::setters! {
        /// Adds a value to the context, such as `auth`, which prompts see as `@auth`.
        pub fn with_value(mut self, key: impl Into<String>, value: impl Into<Value>) {
            self.values.insert(key.into(), value.into());
        }

        /// Adds many values to the context.
        pub fn with_values(mut self, values: Map<String, Value>) { self.values.extend(values) }
    }

    /// Adds a value that tools, flows and turn loops take as an argument: `cart: Dep<Cart>`. It replaces the
    /// application's value of that type in this call.
    ///
    /// An application without a value of that type must declare the type before functions that take it can be
    /// defined: `Everturn::builder().with_each_call::<Cart>()`.
    pub fn with<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        let value = Arc::new(value);
        self.given.push(Arc::new(move |context| {
            context.with_extension(Arc::clone(&value))
        }));
        self
    }

    /// Sets the principal of the call.
    pub fn with_principal(mut self, principal: Principal) -> Self {
        self.principal = Some(principal);
        self
    }

    /// Returns whether the call has a tenant. A principal has precedence over a declaration as anonymous.
    pub(crate) fn has_tenant(&self) -> bool {
        self.principal.is_some() || self.anonymous.is_some()
    }

    /// Adds the answer of a later provider, whose values replace earlier ones of the same names.
    fn merge(&mut self, later: Self) {
        self.values.extend(later.values);
        self.given.extend(later.given);
        self.principal = later.principal.or(self.principal.take());
        self.anonymous = later.anonymous.or(self.anonymous.take());
    }
}

/// Compares the values of the context, the principal and the tenant of anonymous callers. Typed values cannot
/// be compared and are ignored.
impl PartialEq for Provided {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values && self.principal == other.principal && self.anonymous == other.anonymous
    }
}

everturn_core::opaque_debug!(Provided, values, principal, anonymous);

/// Identifies the caller of a request, and provides values for the context of its actions.
///
/// A server has one provider. Several are combined by name: as alternatives with [`or`](ContextProvider::or),
/// in sequence with [`and`](ContextProvider::and).
///
/// ```
/// use everturn_server::{ApiKeys, BearerTokens, ContextProvider, Provided, context_fn};
///
/// let customers = BearerTokens::new([("ann", "a-long-random-token"), ("carl", "another")]).with_role("carl", "staff");
/// let machines = ApiKeys::new([("importer", "a-long-random-key")]);
/// let region = context_fn(|request| Ok(Provided::new().with_value("region", request.header("x-region"))));
///
/// // Customers or machines; staff may act for a customer; every call has the value `region`.
/// let callers = customers.or(machines).acting_for("staff", "x-customer").and(region);
/// # let _ = callers;
/// ```
#[async_trait]
pub trait ContextProvider: Send + Sync + 'static {
    /// Identifies the caller of a request.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` if the request does not prove who calls; `PERMISSION_DENIED` if the caller is not
    /// allowed. Any other error ends the request too.
    async fn provide(&self, request: &CallRequest<'_>) -> HandlerResult<Provided>;

    /// Returns the name and the security scheme object of this provider for the OpenAPI document.
    fn security_scheme(&self) -> Option<(&'static str, Value)> {
        None
    }

    /// Returns the alternatives by which callers identify themselves, each a list of schemes that are needed
    /// together. A provider with one scheme implements [`security_scheme`](ContextProvider::security_scheme)
    /// alone.
    fn security(&self) -> Vec<Vec<(&'static str, Value)>> {
        vec![self.security_scheme().into_iter().collect()]
    }

    /// Uses `other` if this provider does not identify the caller, that is, fails with `UNAUTHENTICATED` or
    /// returns no principal. The answers are not merged. Any other failure, such as `PERMISSION_DENIED`, ends
    /// the request.
    ///
    /// A request with an `Authorization` header that this provider rejects does not become
    /// [anonymous](Provided::anonymous): an expired token is reported.
    ///
    /// The ids of both providers name tenants in one store, so equal ids identify the same caller.
    fn or(self, other: impl ContextProvider) -> impl ContextProvider
    where
        Self: Sized,
    {
        AnyOf(self, other)
    }

    /// Uses both providers, `other` last. Its principal, and its values of the same names, replace those of
    /// this provider; a failure of either ends the request.
    fn and(self, other: impl ContextProvider) -> impl ContextProvider
    where
        Self: Sized,
    {
        All(self, other)
    }

    /// Lets callers with a role act in the tenant that a request names in a header, as
    /// [`Principal::in_tenant`] does. Requests of other callers with that header fail with
    /// `PERMISSION_DENIED`. Listing the sessions of a tenant that does not exist is `NOT_FOUND`, because its
    /// name may be mistyped.
    ///
    /// The role gives access to every tenant. Where organisations assign roles to their members, name a role
    /// that they cannot assign.
    ///
    /// ```
    /// use everturn_server::{BearerTokens, ContextProvider};
    ///
    /// let tokens = BearerTokens::new([("carl", "a-long-random-token")]).with_role("carl", "staff");
    /// let callers = tokens.acting_for("staff", "x-customer");
    /// // curl -H 'authorization: Bearer a-long-random-token' -H 'x-customer: ann' …/agents/desk/listSessions
    /// # let _ = callers;
    /// ```
    ///
    /// # Panics
    /// If `header` cannot be the name of a header in lower case.
    fn acting_for(self, role: impl Into<String>, header: &'static str) -> impl ContextProvider
    where
        Self: Sized,
    {
        ActingFor {
            provider: self,
            role: role.into(),
            header: HeaderName::from_static(header),
        }
    }
}

/// Creates a provider from a synchronous function.
///
/// ```
/// use everturn_core::Error;
/// use everturn_server::{Principal, Provided, context_fn};
///
/// let tenants = context_fn(|request| {
///     let tenant = request.header("x-tenant");
///     let tenant = tenant.ok_or_else(|| Error::unauthenticated("the header 'x-tenant' is missing").with_public())?;
///     Ok(Provided::new().with_value("tenant", tenant).with_principal(Principal::new(tenant)))
/// });
/// # let _ = tenants;
/// ```
pub fn context_fn<F>(function: F) -> impl ContextProvider
where
    F: Fn(&CallRequest<'_>) -> HandlerResult<Provided> + Send + Sync + 'static,
{
    ContextFn(function)
}

struct ContextFn<F>(F);

#[async_trait]
impl<F> ContextProvider for ContextFn<F>
where
    F: Fn(&CallRequest<'_>) -> HandlerResult<Provided> + Send + Sync + 'static,
{
    async fn provide(&self, request: &CallRequest<'_>) -> HandlerResult<Provided> {
        (self.0)(request)
    }
}
