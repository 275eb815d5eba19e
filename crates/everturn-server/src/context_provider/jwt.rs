//! Callers identified by a signed token.

use std::fmt;

use async_trait::async_trait;
use everturn_core::{Error, HandlerResult, Result};
use jsonwebtoken::jwk::KeyAlgorithm;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value, json};

use super::jwks::Jwks;
use super::{CallRequest, ContextProvider, Provided};
use crate::Principal;

/// The shortest secret, in bytes: the size of the signature that it makes.
const SECRET_BYTES: usize = 32;

/// Identifies callers by a JSON Web Token in `Authorization: Bearer <token>`, signed with one of an issuer's
/// keys.
///
/// The context gets the token's claims as `auth`. A token must name the audience and must have an expiry.
///
/// | from the token | by default | set with |
/// |---|---|---|
/// | the principal's id | its `iss` and `sub`: `25:https://login.example.com:ann` | [`principal_id`](JwtTokens::principal_id) |
/// | its tenant | its own | [`tenant_claim`](JwtTokens::tenant_claim) |
/// | its roles | `roles`, and `role` | [`roles_claim`](JwtTokens::roles_claim) |
///
/// A claim is named as it is in the token, or by a JSON pointer, such as `/realm_access/roles`.
///
/// ```no_run
/// use everturn_server::{ContextProvider, Jwks, JwtTokens, PrincipalId};
///
/// # fn main() -> everturn_core::Result<()> {
/// let keys = Jwks::url("https://login.example.com/.well-known/jwks.json")?;
/// let tokens = JwtTokens::new(keys, "kitchen")
///     .issuer("https://login.example.com")
///     .principal_id(PrincipalId::Subject)
///     .roles_claim("groups")
///     // Staff name the customer in whose tenant they act.
///     .acting_for("staff", "x-customer");
/// # let _ = tokens;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct JwtTokens {
    keys: Keys,
    audience: String,
    issuer: Option<String>,
    id: PrincipalId,
    tenant: Option<String>,
    roles: Option<String>,
}

/// The keys that signatures are verified with. The kind of key determines the algorithm, and not the token:
/// if a public key were used as a secret, every caller could sign.
enum Keys {
    Public(Jwks),
    Secret(Box<[u8]>),
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public(keys) => keys.fmt(f),
            Self::Secret(_) => f.write_str("Secret"),
        }
    }
}

/// The claims that a principal's id is made of; see [`JwtTokens::principal_id`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PrincipalId {
    /// `iss` and `sub`, as `<length of iss>:<iss>:<sub>`; the plain `sub` of a token without `iss`. Unique
    /// among all issuers, because a subject is unique only together with its issuer.
    #[default]
    IssuerAndSubject,
    /// The plain `sub`. The same subject of two issuers is the same principal, so it needs an
    /// [issuer](JwtTokens::issuer) or a [secret](JwtTokens::with_secret), and no other provider with these
    /// ids.
    Subject,
    /// The text of another claim, such as `email`. The issuer must verify it, and must not give it to another
    /// caller later.
    Claim(String),
}

impl JwtTokens {
    /// Accepts tokens that are signed with the private key of one of these public keys and name this
    /// audience.
    pub fn new(keys: Jwks, audience: impl Into<String>) -> Self {
        Self::of(Keys::Public(keys), audience.into())
    }

    /// Accepts tokens that are signed with this secret (`HS256`) and name this audience.
    ///
    /// Every program that has the secret can make tokens of any caller. Prefer public keys for tokens of
    /// another program.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a secret of less than 32 bytes.
    pub fn with_secret(secret: impl AsRef<[u8]>, audience: impl Into<String>) -> Result<Self> {
        let secret = secret.as_ref();
        if secret.len() < SECRET_BYTES {
            return Err(Error::invalid_argument(format!(
                "the secret has {} bytes; use at least {SECRET_BYTES} random ones",
                secret.len()
            )));
        }
        Ok(Self::of(Keys::Secret(secret.into()), audience.into()))
    }

    fn of(keys: Keys, audience: String) -> Self {
        Self {
            keys,
            audience,
            issuer: None,
            id: PrincipalId::default(),
            tenant: None,
            roles: None,
        }
    }

    /// Accepts only tokens of this issuer.
    #[must_use]
    pub fn issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuer = Some(issuer.into());
        self
    }

    /// Sets the claims that the principal's id is made of. The id names the caller's tenant in stores and in
    /// `deleteTenant`: a change hides the sessions that were stored under the old id.
    #[must_use]
    pub fn principal_id(mut self, id: PrincipalId) -> Self {
        self.id = id;
        self
    }

    /// Sets the claim that names the caller's tenant, such as an organisation. A token without it is
    /// rejected.
    #[must_use]
    pub fn tenant_claim(mut self, claim: impl Into<String>) -> Self {
        self.tenant = Some(claim.into());
        self
    }

    /// Sets the claim with the caller's roles: a list of texts, or one text with roles between spaces, as in
    /// `scope`. It replaces `role` and `roles`, also in the value `auth`.
    #[must_use]
    pub fn roles_claim(mut self, claim: impl Into<String>) -> Self {
        self.roles = Some(claim.into());
        self
    }

    async fn claims(&self, token: &str) -> Result<Value> {
        // The reason is for the operator; a forger must not learn it.
        let refused = |error: jsonwebtoken::errors::Error| {
            Error::unauthenticated(format!("the token was refused: {error}"))
                .with_public_message("the token is not valid")
        };
        let header = decode_header(token).map_err(refused)?;
        let wrong_algorithm = || refused(jsonwebtoken::errors::ErrorKind::InvalidAlgorithm.into());
        let key = match &self.keys {
            Keys::Secret(_) if header.alg != Algorithm::HS256 => return Err(wrong_algorithm()),
            Keys::Secret(secret) => DecodingKey::from_secret(secret),
            Keys::Public(keys) => {
                let key = keys.find(header.kid.as_deref()).await?;
                let meant_for = key.common.key_algorithm;
                let is_other = meant_for.is_some_and(|meant| meant != KeyAlgorithm::from(header.alg));
                if is_other || is_symmetric(header.alg) {
                    return Err(wrong_algorithm());
                }
                DecodingKey::from_jwk(&key).map_err(refused)?
            }
        };
        let mut validation = Validation::new(header.alg);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "aud", "sub"]);
        validation.validate_nbf = true;
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            validation.set_required_spec_claims(&["exp", "aud", "sub", "iss"]);
        }
        let token = decode::<Map<String, Value>>(token, &key, &validation).map_err(refused)?;
        Ok(Value::Object(token.claims))
    }

    /// Returns the principal that a token's claims name.
    fn principal(&self, claims: &Value) -> Result<Principal> {
        let text = |name: &str| {
            let text = claim(claims, name)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty());
            let missing = || Error::unauthenticated(format!("the token has no text in its claim '{name}'"));
            text.ok_or_else(|| missing().with_public())
        };
        let subject = text("sub")?;
        let id = match (&self.id, claims.get("iss").and_then(Value::as_str)) {
            (PrincipalId::Claim(name), _) => text(name)?.to_owned(),
            // The length makes the boundary between the two unambiguous.
            (PrincipalId::IssuerAndSubject, Some(issuer)) => format!("{}:{issuer}:{subject}", issuer.len()),
            (PrincipalId::IssuerAndSubject, None) | (PrincipalId::Subject, _) => subject.to_owned(),
        };
        let principal = match &self.tenant {
            Some(name) => Principal::new(id).in_tenant(text(name)?),
            None => Principal::new(id),
        };
        let roles = claim(claims, self.roles.as_deref().unwrap_or("roles"));
        let listed = roles
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let written = roles
            .and_then(Value::as_str)
            .into_iter()
            .flat_map(str::split_whitespace);
        Ok(listed.chain(written).fold(principal, Principal::with_role))
    }
}

/// Returns a claim by its name or JSON pointer.
fn claim<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    if name.starts_with('/') {
        claims.pointer(name)
    } else {
        claims.get(name)
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
        let mut claims = self.claims(token).await?;
        let principal = self.principal(&claims)?;
        if let (Some(_), Some(claims)) = (&self.roles, claims.as_object_mut()) {
            // Roles in `auth` count, and these are not the caller's.
            claims.remove("role");
            claims.insert("roles".to_owned(), principal.roles().collect());
        }
        Ok(Provided::new()
            .with_value("auth", claims)
            .with_principal(principal))
    }

    fn security_scheme(&self) -> Option<(&'static str, Value)> {
        let scheme = json!({ "type": "http", "scheme": "bearer", "bearerFormat": "JWT" });
        Some(("jwt", scheme))
    }
}
