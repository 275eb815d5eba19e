//! The tokens of customers and staff. A real desk gets them from a login service.

use std::time::{Duration, SystemTime};

use everturn::prelude::*;
use jsonwebtoken::{EncodingKey, Header, encode};

/// The audience for which tokens are issued.
pub const AUDIENCE: &str = "travel-desk";

/// How long a token is valid.
const VALIDITY: Duration = Duration::from_hours(12);

/// Returns a token for a person with these roles.
///
/// # Errors
/// If the token cannot be signed.
pub fn token(secret: &str, name: &str, roles: &[&str]) -> Result<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let expiry = now.unwrap_or_default() + VALIDITY;
    let claims = json!({"sub": name, "roles": roles, "aud": AUDIENCE, "exp": expiry.as_secs()});
    let key = EncodingKey::from_secret(secret.as_bytes());
    encode(&Header::default(), &claims, &key)
        .map_err(|error| Error::internal("the token cannot be signed").with_source(error))
}
