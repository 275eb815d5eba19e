//! Context providers, which identify the caller of a request and provide values for the context of its actions.

mod api_key;
mod bearer;
#[cfg(feature = "jwt")]
mod jwks;
#[cfg(feature = "jwt")]
mod jwt;
mod secrets;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use axum::http::{HeaderMap, Method};
use everturn_core::{Context, HandlerResult};
use serde_json::{Map, Value};

pub use self::api_key::ApiKeys;
pub use self::bearer::BearerTokens;
#[cfg(feature = "jwt")]
pub use self::jwks::Jwks;
#[cfg(feature = "jwt")]
pub use self::jwt::JwtTokens;
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
#[derive(Clone, Default)]
#[must_use]
pub struct Provided {
    pub(crate) values: Map<String, Value>,
    pub(crate) given: Vec<Give>,
    pub(crate) principal: Option<Principal>,
}

impl Provided {
    /// Creates the answer for an anonymous caller without claims.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value to the context, such as `auth`, which prompts see as `@auth`.
    pub fn with_value(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.values.insert(key.into(), value.into());
        self
    }

    /// Adds many values to the context.
    pub fn with_values(mut self, values: Map<String, Value>) -> Self {
        self.values.extend(values);
        self
    }

    /// Gives the call a value that tools, flows and turn loops take as an argument: `cart: Dep<Cart>`. It hides the
    /// application's value of that type.
    ///
    /// An application that has no value of that type itself declares it, so that functions which take one can be defined:
    /// `Everturn::builder().with_each_call::<Cart>()`.
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

    /// Adds the answer of a later provider, whose values replace earlier ones of the same names.
    pub(crate) fn merge(&mut self, later: Self) {
        self.values.extend(later.values);
        self.given.extend(later.given);
        if later.principal.is_some() {
            self.principal = later.principal;
        }
    }
}

/// Compares the values of the context and the principal; values given by their types cannot be compared.
impl PartialEq for Provided {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values && self.principal == other.principal
    }
}

impl fmt::Debug for Provided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provided")
            .field("values", &self.values)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// Identifies the caller of a request, and provides values for the context of its actions.
///
/// A server asks its providers in order. The values of a later provider replace those of an earlier one, and the first
/// failure ends the request with its status.
#[async_trait]
pub trait ContextProvider: Send + Sync + 'static {
    /// Identifies the caller of a request.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` if the request does not prove who calls; `PERMISSION_DENIED` if the caller is not allowed. Any other
    /// error ends the request too.
    async fn provide(&self, request: &CallRequest<'_>) -> HandlerResult<Provided>;

    /// Returns how callers identify themselves, for the OpenAPI document: a name and a security scheme object.
    fn security_scheme(&self) -> Option<(&'static str, Value)> {
        None
    }
}

/// Makes a provider from a function that does not need to wait.
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
