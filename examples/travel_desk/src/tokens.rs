//! The tokens of customers and staff. A real desk gets them from a login service.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use everturn::prelude::*;
use ring::hmac;

/// The audience for which tokens are issued.
pub const AUDIENCE: &str = "travel-desk";

/// How long a token is valid.
const VALIDITY: Duration = Duration::from_hours(12);

/// Returns a token for a person with these roles.
pub fn token(secret: &str, name: &str, roles: &[&str]) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let expiry = now.unwrap_or_default() + VALIDITY;
    signed(
        secret,
        json!({"sub": name, "roles": roles, "aud": AUDIENCE, "exp": expiry.as_secs()}),
    )
}

/// Returns a token with these claims.
pub fn signed(secret: &str, claims: Value) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(json!({"alg": "HS256", "typ": "JWT"})), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, message.as_bytes()));
    format!("{message}.{signature}")
}
