//! Callers identified by a signed token.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use everturn_core::{Error, HandlerResult, Result};
use ring::hmac;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::jwks::Jwks;
use super::{CallRequest, ContextProvider, Provided};
use crate::Principal;

/// The shortest secret, in bytes: the size of the signature that it makes.
const SECRET_BYTES: usize = 32;

/// How far the clocks of the issuer and the server may differ, in seconds.
const LEEWAY_SECONDS: f64 = 60.0;

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

    everturn_core::setters! {
        /// Accepts only tokens of this issuer.
        #[must_use]
        pub fn issuer(mut self, issuer: impl Into<String>) { self.issuer = Some(issuer.into()) }

        /// Sets the claims that the principal's id is made of. The id names the caller's tenant in stores and
        /// in `deleteTenant`: a change hides the sessions that were stored under the old id.
        #[must_use]
        pub fn principal_id(mut self, id: PrincipalId) { self.id = id }

        /// Sets the claim that names the caller's tenant, such as an organisation. A token without it is
        /// rejected.
        #[must_use]
        pub fn tenant_claim(mut self, claim: impl Into<String>) { self.tenant = Some(claim.into()) }

        /// Sets the claim with the caller's roles: a list of texts, or one text with roles between spaces, as
        /// in `scope`. It replaces `role` and `roles`, also in the value `auth`.
        #[must_use]
        pub fn roles_claim(mut self, claim: impl Into<String>) { self.roles = Some(claim.into()) }
    }

    async fn claims(&self, token: &str) -> Result<Value> {
        let signed = SignedToken::parse(token).ok_or_else(|| refused("it is malformed"))?;
        let algorithm = signed.header.alg.as_str();
        let (message, signature) = (signed.message.as_bytes(), signed.signature.as_slice());
        let is_valid = match &self.keys {
            Keys::Secret(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                algorithm == "HS256" && hmac::verify(&key, message, signature).is_ok()
            }
            Keys::Public(keys) => {
                let key = keys.find(signed.header.kid.as_deref()).await?;
                key.verifies(algorithm, message, signature)
            }
        };
        if !is_valid {
            return Err(refused("its signature or algorithm is wrong"));
        }
        self.check(&signed.claims)?;
        Ok(Value::Object(signed.claims))
    }

    /// Checks the registered claims of a token with a valid signature.
    fn check(&self, claims: &Map<String, Value>) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs_f64();
        let time = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(time) => match time.as_f64() {
                Some(time) => Ok(Some(time)),
                None => Err(refused(&format!("'{name}' is not a time"))),
            },
        };
        let expiry = time("exp")?.ok_or_else(|| refused("it has no expiry"))?;
        if expiry < now - LEEWAY_SECONDS {
            return Err(refused("it has expired"));
        }
        if time("nbf")?.is_some_and(|begin| begin > now + LEEWAY_SECONDS) {
            return Err(refused("it is not valid yet"));
        }
        let names_audience = match claims.get("aud") {
            Some(Value::Array(names)) => names.iter().any(|name| *name == *self.audience),
            Some(name) => *name == *self.audience,
            None => false,
        };
        if !names_audience {
            return Err(refused("it is for another audience"));
        }
        if let Some(issuer) = &self.issuer
            && claims.get("iss").is_none_or(|named| *named != **issuer)
        {
            return Err(refused("it is of another issuer"));
        }
        Ok(())
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

/// Returns the error for an invalid token. The reason is for the operator; a forger must not learn it.
fn refused(reason: &str) -> Error {
    Error::unauthenticated(format!("the token was refused: {reason}"))
        .with_public_message("the token is not valid")
}

/// The parts of a token in the compact form, `header.claims.signature`.
struct SignedToken<'a> {
    header: Header,
    claims: Map<String, Value>,
    /// The text that is signed.
    message: &'a str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that a reader must support; none is.
    crit: Option<IgnoredAny>,
}

impl<'a> SignedToken<'a> {
    fn parse(token: &'a str) -> Option<Self> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Header = serde_json::from_slice(&decode(header)?).ok()?;
        if header.crit.is_some() {
            return None;
        }
        Some(Self {
            claims: serde_json::from_slice(&decode(claims)?).ok()?,
            signature: decode(signature)?,
            header,
            message,
        })
    }
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
