//! Callers identified by a secret: an API key or a bearer token.

use std::collections::HashMap;
use std::fmt;

use async_trait::async_trait;
use axum::http::HeaderName;
use everturn_core::{Error, HandlerResult};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{CallRequest, ContextProvider, Provided};
use crate::Principal;

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

    everturn_core::setters! {
        /// Reads the key from another header, whose whole value is the key.
        #[must_use]
        pub fn header(mut self, header: HeaderName) { self.header = header }

        /// Gives the owner of a key a role, which is also in `auth.roles`. The owner must have been given
        /// before.
        #[must_use]
        pub fn with_role(mut self, owner: &str, role: &str) { self.secrets.add_role(owner, role) }
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
        Ok(provided(owner))
    }

    fn security_scheme(&self) -> Option<(&'static str, Value)> {
        let header = self.header.as_str();
        Some((
            "apiKey",
            json!({ "type": "apiKey", "in": "header", "name": header }),
        ))
    }
}

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
        Ok(provided(owner))
    }

    fn security_scheme(&self) -> Option<(&'static str, Value)> {
        Some(("bearer", json!({ "type": "http", "scheme": "bearer" })))
    }
}

/// Secrets by their digest. A look-up compares digests, which a caller cannot steer, so its duration reveals
/// nothing about the secrets.
#[derive(Clone)]
struct Secrets(HashMap<[u8; 32], Principal>);

impl Secrets {
    fn new(secrets: impl IntoIterator<Item = (impl Into<String>, impl AsRef<str>)>) -> Self {
        let entries = secrets
            .into_iter()
            // An empty secret is usually one that was not configured.
            .filter(|(_, secret)| !secret.as_ref().is_empty())
            .map(|(principal, secret)| (digest(secret.as_ref()), Principal::new(principal.into())));
        Self(entries.collect())
    }

    /// Gives a role to the owner of that name.
    fn add_role(&mut self, owner: &str, role: &str) {
        for principal in self.0.values_mut().filter(|principal| principal.id() == owner) {
            *principal = principal.clone().with_role(role);
        }
    }

    fn owner(&self, secret: &str) -> Option<&Principal> {
        self.0.get(&digest(secret))
    }
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Returns the answer for the owner of a secret.
fn provided(owner: &Principal) -> Provided {
    Provided::new()
        .with_values(owner.context().values().clone())
        .with_principal(owner.clone())
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.values()).finish()
    }
}
