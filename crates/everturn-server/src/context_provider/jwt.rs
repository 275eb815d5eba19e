//! Callers identified by a signed token.

use async_trait::async_trait;
use everturn_core::{Error, HandlerResult, Result};
use jsonwebtoken::jwk::KeyAlgorithm;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value, json};

use super::jwks::Jwks;
use super::{CallRequest, ContextProvider, Provided};
use crate::Principal;

/// Identifies callers by a JSON Web Token in `Authorization: Bearer <token>`, signed with one of an issuer's keys.
///
/// The principal is the token's `sub`, together with its `iss` if it has one. The context gets the token's claims as `auth`.
/// A token must be meant for the audience and must have an expiry. Only public-key signatures are accepted.
///
/// ```no_run
/// use everturn_server::{Jwks, JwtTokens};
///
/// # fn main() -> everturn_core::Result<()> {
/// let keys = Jwks::url("https://login.example.com/.well-known/jwks.json")?;
/// let tokens = JwtTokens::new(keys, "kitchen").issuer("https://login.example.com");
/// # let _ = tokens;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct JwtTokens {
    keys: Jwks,
    audience: String,
    issuer: Option<String>,
}

impl JwtTokens {
    /// Accepts tokens that are signed with one of these keys and meant for this audience.
    pub fn new(keys: Jwks, audience: impl Into<String>) -> Self {
        Self {
            keys,
            audience: audience.into(),
            issuer: None,
        }
    }

    /// Accepts only tokens of this issuer.
    #[must_use]
    pub fn issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuer = Some(issuer.into());
        self
    }

    async fn claims(&self, token: &str) -> Result<Map<String, Value>> {
        // The reason is for the operator; a forger must not learn it.
        let refused = |error: jsonwebtoken::errors::Error| {
            Error::unauthenticated(format!("the token was refused: {error}"))
                .with_public_message("the token is not valid")
        };
        let header = decode_header(token).map_err(refused)?;
        let key = self.keys.find(header.kid.as_deref()).await?;
        let meant_for = key.common.key_algorithm;
        let is_other = meant_for.is_some_and(|meant| meant != KeyAlgorithm::from(header.alg));
        if is_other || is_symmetric(header.alg) {
            return Err(refused(jsonwebtoken::errors::ErrorKind::InvalidAlgorithm.into()));
        }
        let mut validation = Validation::new(header.alg);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "aud", "sub"]);
        validation.validate_nbf = true;
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            validation.set_required_spec_claims(&["exp", "aud", "sub", "iss"]);
        }
        let key = DecodingKey::from_jwk(&key).map_err(refused)?;
        let token = decode::<Map<String, Value>>(token, &key, &validation).map_err(refused)?;
        Ok(token.claims)
    }
}

/// Returns whether the algorithm is symmetric, so that everyone who can check a signature can make one.
fn is_symmetric(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
}

#[async_trait]
impl ContextProvider for JwtTokens {
    async fn provide(&self, request: &CallRequest<'_>) -> HandlerResult<Provided> {
        let token = request.bearer_token().ok_or_else(|| {
            Error::unauthenticated("send a token as 'Authorization: Bearer <token>'").with_public()
        })?;
        let claims = self.claims(token).await?;
        let claim = |name: &str| claims.get(name).and_then(Value::as_str);
        let subject = claim("sub").filter(|subject| !subject.is_empty());
        let subject = subject
            .ok_or_else(|| Error::unauthenticated("the token has no subject ('sub')").with_public())?;
        // A subject is unique only together with its issuer; the length keeps the two apart.
        let principal = match claim("iss") {
            Some(issuer) => format!("{}:{issuer}:{subject}", issuer.len()),
            None => subject.to_owned(),
        };
        Ok(Provided::new()
            .with_value("auth", claims)
            .with_principal(Principal::new(principal)))
    }

    fn security_scheme(&self) -> Option<(&'static str, Value)> {
        let scheme = json!({ "type": "http", "scheme": "bearer", "bearerFormat": "JWT" });
        Some(("jwt", scheme))
    }
}
