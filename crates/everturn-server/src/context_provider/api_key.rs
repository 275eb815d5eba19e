//! Callers identified by an API key.

use async_trait::async_trait;
use axum::http::HeaderName;
use everturn_core::{Error, HandlerResult};
use serde_json::{Value, json};

use super::secrets::Secrets;
use super::{CallRequest, ContextProvider, Provided};

/// Identifies callers by a key in a header, `x-api-key` by default.
///
/// The context gets `auth: {"principal": <name>}`, never the key. A request without a key fails with
/// `UNAUTHENTICATED`, and one with an unknown key with `PERMISSION_DENIED`, as with Genkit's own provider.
///
/// ```
/// use axum::http::header::AUTHORIZATION;
/// use everturn_server::ApiKeys;
///
/// let keys = ApiKeys::new([("alice", "a-long-random-key")]).header(AUTHORIZATION);
/// # let _ = keys;
/// ```
#[derive(Debug, Clone)]
pub struct ApiKeys {
    secrets: Secrets,
    header: HeaderName,
}

impl ApiKeys {
    /// Accepts these keys, each given after the name of its owner. Empty keys are ignored.
    pub fn new(keys: impl IntoIterator<Item = (impl Into<String>, impl AsRef<str>)>) -> Self {
        Self {
            secrets: Secrets::new(keys),
            header: HeaderName::from_static("x-api-key"),
        }
    }

    /// Reads the key from another header, whose whole value is the key.
    #[must_use]
    pub fn header(mut self, header: HeaderName) -> Self {
        self.header = header;
        self
    }

    /// Gives the owner of a key a role, which is also in `auth.roles`. The owner must have been given before.
    #[must_use]
    pub fn with_role(mut self, owner: &str, role: &str) -> Self {
        self.secrets.add_role(owner, role);
        self
    }
}

#[async_trait]
impl ContextProvider for ApiKeys {
    async fn provide(&self, request: &CallRequest<'_>) -> HandlerResult<Provided> {
        let key = request.header(self.header.as_str()).ok_or_else(|| {
            Error::unauthenticated(format!("send a key in the header '{}'", self.header)).with_public()
        })?;
        let owner = self.secrets.owner(key);
        let owner = owner.ok_or_else(|| Error::permission_denied("the key is not known").with_public())?;
        Ok(Provided::new()
            .with_values(owner.context().values().clone())
            .with_principal(owner.clone()))
    }

    fn security_scheme(&self) -> Option<(&'static str, Value)> {
        let header = self.header.as_str();
        Some((
            "apiKey",
            json!({ "type": "apiKey", "in": "header", "name": header }),
        ))
    }
}
