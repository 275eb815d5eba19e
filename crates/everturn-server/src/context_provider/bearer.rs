//! Callers identified by a bearer token.

use async_trait::async_trait;
use everturn_core::{Error, HandlerResult};
use serde_json::{Value, json};

use super::secrets::Secrets;
use super::{CallRequest, ContextProvider, Provided};

/// Identifies callers by `Authorization: Bearer <token>`, where each token belongs to one caller.
///
/// The context gets `auth: {"principal": <name>}`, never the token. A request without a token, or with an
/// unknown one, fails with `UNAUTHENTICATED`.
///
/// ```
/// use everturn_server::BearerTokens;
///
/// let tokens = BearerTokens::new([("alice", "a-long-random-token"), ("bob", "another")]);
/// # let _ = tokens;
/// ```
#[derive(Debug, Clone)]
pub struct BearerTokens(Secrets);

impl BearerTokens {
    /// Accepts these tokens, each given after the name of its owner. Empty tokens are ignored.
    pub fn new(tokens: impl IntoIterator<Item = (impl Into<String>, impl AsRef<str>)>) -> Self {
        Self(Secrets::new(tokens))
    }

    /// Gives the owner of a token a role, which is also in `auth.roles`. The owner must have been given
    /// before.
    #[must_use]
    pub fn with_role(mut self, owner: &str, role: &str) -> Self {
        self.0.add_role(owner, role);
        self
    }
}

#[async_trait]
impl ContextProvider for BearerTokens {
    async fn provide(&self, request: &CallRequest<'_>) -> HandlerResult<Provided> {
        let token = request.bearer_token().ok_or_else(|| {
            Error::unauthenticated("send a token as 'Authorization: Bearer <token>'").with_public()
        })?;
        let owner = self.0.owner(token);
        let owner = owner.ok_or_else(|| Error::unauthenticated("the token is not known").with_public())?;
        Ok(Provided::new()
            .with_values(owner.context().values().clone())
            .with_principal(owner.clone()))
    }

    fn security_scheme(&self) -> Option<(&'static str, Value)> {
        Some(("bearer", json!({ "type": "http", "scheme": "bearer" })))
    }
}
