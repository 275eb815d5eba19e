//! The public keys that tokens are signed with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Error, Result};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use super::jwk::Jwk;

/// The age at which keys are read again.
const REFRESH_AFTER: Duration = Duration::from_mins(10);

/// How often, at most, keys are read again because a token names an unknown one. Without a limit, anyone
/// could make the server send requests.
const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(30);

/// The age up to which keys are used when they cannot be read again.
const STALE_AFTER: Duration = Duration::from_hours(24);

/// How long a request for keys may take.
const FETCH_TIME: Duration = Duration::from_secs(10);

/// How large a key set may be.
const MAX_BYTES: usize = 1024 * 1024;

/// A JSON Web Key Set: given, in a file, or behind a URL.
///
/// Keys are kept for ten minutes. A token that names an unknown key makes the set be read again at once, but
/// not more often than every 30 seconds.
pub struct Jwks {
    source: Source,
    cached: Mutex<Option<Cached>>,
    /// Lets one caller read the keys while the others wait for them.
    reading: tokio::sync::Mutex<()>,
}

enum Source {
    Given(Arc<JwkSet>),
    File(PathBuf),
    Url {
        client: reqwest::Client,
        url: reqwest::Url,
    },
}

#[derive(Clone, Deserialize)]
struct JwkSet {
    keys: Vec<Jwk>,
}

#[derive(Clone)]
struct Cached {
    keys: Arc<JwkSet>,
    /// When the keys were read.
    read: Instant,
    /// When the keys were last requested; later than `read` if that request failed.
    tried: Instant,
}

impl Jwks {
    fn new(source: Source) -> Self {
        Self {
            source,
            cached: Mutex::new(None),
            reading: tokio::sync::Mutex::new(()),
        }
    }

    /// Returns a key set that is given as JSON.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the JSON is not a key set.
    pub fn from_json(json: &str) -> Result<Self> {
        Ok(Self::new(Source::Given(Arc::new(parse(json.as_bytes())?))))
    }

    /// Returns the key set in a file, which is read again as it ages.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(Source::File(path.into()))
    }

    /// Returns the key set behind a URL, such as an issuer's `/.well-known/jwks.json`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not an `https` URL; `http` is allowed for this machine only.
    pub fn url(url: &str) -> Result<Self> {
        let url = reqwest::Url::parse(url)
            .map_err(|error| Error::invalid_argument(format!("'{url}' is not a URL: {error}")))?;
        let is_local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        if url.scheme() != "https" && !(url.scheme() == "http" && is_local) {
            return Err(Error::invalid_argument(format!(
                "keys must be fetched over https, not from '{url}': an attacker who can change them can impersonate every caller"
            )));
        }
        everturn_core::install_tls_provider();
        let client = reqwest::Client::builder()
            .timeout(FETCH_TIME)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(Error::foreign)?;
        Ok(Self::new(Source::Url { client, url }))
    }

    /// Returns the key that a token names or, if it names none, the only key of the set.
    ///
    /// Fails with `UNAUTHENTICATED` if there is no such key, with `UNAVAILABLE` if the keys cannot be read.
    pub(super) async fn find(&self, kid: Option<&str>) -> Result<Jwk> {
        let known = |set: &JwkSet| match (kid, set.keys.as_slice()) {
            (Some(_), keys) => keys.iter().find(|key| key.kid.as_deref() == kid).cloned(),
            (None, [key]) => Some(key.clone()),
            (None, _) => None,
        };
        let keys = self.keys(REFRESH_AFTER).await?;
        if let Some(key) = known(&keys) {
            return Ok(key);
        }
        // The issuer may have rotated its keys since they were read.
        let keys = self.keys(UNKNOWN_KEY_PAUSE).await?;
        known(&keys)
            .ok_or_else(|| Error::unauthenticated("the token is signed with an unknown key").with_public())
    }

    /// Returns the keys, and reads them again if they were last requested longer than `age` ago.
    async fn keys(&self, age: Duration) -> Result<Arc<JwkSet>> {
        if let Source::Given(keys) = &self.source {
            return Ok(Arc::clone(keys));
        }
        let fresh = |cached: Option<Cached>| cached.filter(|cached| cached.tried.elapsed() < age);
        if let Some(cached) = fresh(self.cached()) {
            return Ok(cached.keys);
        }
        let _reading = self.reading.lock().await;
        // Another caller may have read them while this one waited.
        if let Some(cached) = fresh(self.cached()) {
            return Ok(cached.keys);
        }
        let now = Instant::now();
        let cached = match (self.read().await, self.cached()) {
            (Ok(keys), _) => Cached {
                keys: Arc::new(keys),
                read: now,
                tried: now,
            },
            // An outage of the issuer must not lock out callers with valid tokens.
            (Err(error), Some(old)) if old.read.elapsed() < STALE_AFTER => {
                tracing::warn!(%error, "the keys cannot be read again; those read before are used");
                Cached { tried: now, ..old }
            }
            (Err(error), _) => {
                let message = format!("the keys that tokens are signed with cannot be read: {error}");
                return Err(Error::unavailable(message));
            }
        };
        *self.cached.lock() = Some(cached.clone());
        Ok(cached.keys)
    }

    fn cached(&self) -> Option<Cached> {
        self.cached.lock().clone()
    }

    async fn read(&self) -> Result<JwkSet> {
        match &self.source {
            Source::Given(keys) => Ok(JwkSet::clone(keys)),
            Source::File(path) => parse(&tokio::fs::read(path).await?),
            Source::Url { client, url } => {
                let response = client.get(url.clone()).send().await.map_err(Error::foreign)?;
                let mut response = response.error_for_status().map_err(Error::foreign)?;
                let mut body = Vec::new();
                while let Some(bytes) = response.chunk().await.map_err(Error::foreign)? {
                    if body.len() + bytes.len() > MAX_BYTES {
                        return Err(Error::out_of_range("the key set is too large"));
                    }
                    body.extend_from_slice(&bytes);
                }
                parse(&body)
            }
        }
    }
}

fn parse(json: &[u8]) -> Result<JwkSet> {
    serde_json::from_slice(json)
        .map_err(|error| Error::invalid_argument(format!("not a JSON Web Key Set: {error}")))
}

impl fmt::Debug for Jwks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Given(_) => f.write_str("Jwks(given)"),
            Source::File(path) => f.debug_tuple("Jwks").field(path).finish(),
            Source::Url { url, .. } => f.debug_tuple("Jwks").field(&url.as_str()).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;

    fn set(kid: &str) -> String {
        format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{kid}","x":"AAAA"}}]}}"#)
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_cached_read_again_when_one_is_missing_and_expire() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        let keys = Jwks::file(&path);
        let status = |found: Result<Jwk>| found.err().map(|error| error.status());

        assert_eq!(status(keys.find(Some("old")).await), Some(Status::Unavailable));
        std::fs::write(&path, set("old")).unwrap();
        assert_eq!(status(keys.find(Some("old")).await), None);
        assert_eq!(status(keys.find(None).await), None, "the only one there is");

        std::fs::write(&path, set("new")).unwrap();
        assert_eq!(
            status(keys.find(Some("new")).await),
            Some(Status::Unauthenticated)
        );
        tokio::time::advance(UNKNOWN_KEY_PAUSE).await;
        assert_eq!(status(keys.find(Some("new")).await), None);
        assert_eq!(
            status(keys.find(Some("old")).await),
            Some(Status::Unauthenticated)
        );

        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(REFRESH_AFTER).await;
        assert_eq!(
            status(keys.find(Some("new")).await),
            None,
            "what was read before is used"
        );
        tokio::time::advance(STALE_AFTER).await;
        assert_eq!(status(keys.find(Some("new")).await), Some(Status::Unavailable));
    }

    #[test]
    fn keys_are_fetched_over_https_or_from_the_own_machine() {
        assert!(Jwks::url("https://login.example.com/jwks.json").is_ok());
        assert!(Jwks::url("http://127.0.0.1:1/jwks.json").is_ok());
        for wrong in [
            "http://login.example.com/jwks.json",
            "file:///etc/passwd",
            "jwks.json",
        ] {
            assert!(Jwks::url(wrong).is_err(), "{wrong}");
        }
    }
}
