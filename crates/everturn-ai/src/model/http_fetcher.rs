//! Fetching media over HTTP.

use std::error::Error as StdError;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use everturn_core::{Error, HandlerResult, Result};
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url, header};

use super::fetch_rules::{Fetch, FetchRules};
use super::{FetchedMedia, MediaFetcher};

/// How many redirects in a row are followed.
const MAX_REDIRECTS: usize = 3;

/// A [`MediaFetcher`] over HTTP. It checks every address that it connects to, uses no proxy, and its errors
/// contain no part of a response.
#[derive(Debug, Clone, Default)]
pub struct HttpMediaFetcher {
    /// Reaches public addresses only.
    public: Arc<OnceLock<Client>>,
    /// Reaches every address.
    any: Arc<OnceLock<Client>>,
}

impl HttpMediaFetcher {
    async fn get(&self, fetch: &Fetch<'_>) -> Result<FetchedMedia> {
        let mut url = parsed(fetch.url())?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.request(&url, fetch.rules()).await?;
            match redirected(&response) {
                Some(target) => {
                    url = parsed(target?.as_str())?;
                    // The target of the redirect is not shown to the caller.
                    let checked = fetch.rules().check_url(url.as_str());
                    checked.map_err(|error| failed(format_args!("it redirects elsewhere: {error}")))?;
                }
                None => return read(response, fetch).await,
            }
        }
        Err(failed(format_args!(
            "it redirects more than {MAX_REDIRECTS} times"
        )))
    }

    async fn request(&self, url: &Url, rules: &FetchRules) -> Result<Response> {
        // A literal address is not resolved, so it is checked here. The parser has normalised it.
        let literal = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if let Ok(address) = literal.parse::<IpAddr>()
            && !rules.allows_address(address)
        {
            return Err(failed(format_args!("{address} is not a public address")));
        }
        let response = self.client(rules)?.get(url.clone()).send().await;
        response.map_err(|error| failed(innermost(&error)))
    }

    fn client(&self, rules: &FetchRules) -> Result<&Client> {
        let client = if rules.allows_address(IpAddr::from([127, 0, 0, 1])) {
            &self.any
        } else {
            &self.public
        };
        if let Some(client) = client.get() {
            return Ok(client);
        }
        let rules = rules.clone();
        let built = client_of(CheckedNames {
            look_up: |name: Name| async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) },
            allows: move |address| rules.allows_address(address),
        })?;
        Ok(client.get_or_init(|| built))
    }
}

fn client_of(names: impl Resolve + 'static) -> Result<Client> {
    everturn_core::install_tls_provider();
    let client = Client::builder()
        .redirect(Policy::none())
        .no_proxy()
        // Every request gets a new connection, whose address is checked.
        .pool_max_idle_per_host(0)
        .dns_resolver(names);
    client.build().map_err(Error::foreign)
}

/// Resolves names to those of their addresses that are allowed. The connection is made to one of these, so a
/// later resolution to another address has no effect.
struct CheckedNames<L, A> {
    look_up: L,
    allows: A,
}

impl<L, F, A> Resolve for CheckedNames<L, A>
where
    L: Fn(Name) -> F + Send + Sync,
    F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    A: Fn(IpAddr) -> bool + Clone + Send + Sync + 'static,
{
    fn resolve(&self, name: Name) -> Resolving {
        let (looking_up, allows) = ((self.look_up)(name), self.allows.clone());
        Box::pin(async move {
            let mut allowed = looking_up.await?;
            allowed.retain(|found| allows(found.ip()));
            if allowed.is_empty() {
                return Err("the host has no public address".into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

fn parsed(url: &str) -> Result<Url> {
    Url::parse(url).map_err(|error| failed(format_args!("it is no URL: {error}")))
}

/// Returns where a response redirects to.
fn redirected(response: &Response) -> Option<Result<Url>> {
    let target = response.headers().get(header::LOCATION)?;
    response.status().is_redirection().then(|| {
        let target = target
            .to_str()
            .ok()
            .and_then(|target| response.url().join(target).ok());
        target.ok_or_else(|| failed("it redirects to something that is no URL"))
    })
}

/// Reads a body as it arrives, up to the limit.
async fn read(mut response: Response, fetch: &Fetch<'_>) -> Result<FetchedMedia> {
    if response.status() != reqwest::StatusCode::OK {
        return Err(failed(format_args!("the server answered {}", response.status())));
    }
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| failed(innermost(&error)))?
    {
        fetch.take(chunk.len())?;
        bytes.extend_from_slice(&chunk);
    }
    Ok(FetchedMedia { content_type, bytes })
}

fn innermost(error: &dyn StdError) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// An error with a text for the operator.
fn failed(why: impl std::fmt::Display) -> Error {
    Error::invalid_argument(why.to_string())
}

impl MediaFetcher for HttpMediaFetcher {
    fn fetch<'a>(&'a self, fetch: &'a Fetch<'a>) -> BoxFuture<'a, HandlerResult<FetchedMedia>> {
        Box::pin(async { Ok(self.get(fetch).await?) })
    }
}

// Other systems have one loopback address.
#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::FetchBudget;

    /// Answers every request with the address as content, except those for `/away`, which are redirected to
    /// the same host.
    fn serve(listener: TcpListener, host: String) {
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let length = connection.read(&mut request).await.unwrap();
                let address = listener.local_addr().unwrap().ip().to_string();
                let head = if request[..length].starts_with(b"GET /away") {
                    format!("302 Found\r\nlocation: http://{host}/")
                } else {
                    "200 OK".to_owned()
                };
                let length = address.len();
                let answer = format!(
                    "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{address}"
                );
                connection.write_all(answer.as_bytes()).await.unwrap();
            }
        });
    }

    /// DNS rebinding: the name of an allowed host resolves to a private address once it has passed the check.
    #[tokio::test]
    async fn a_name_that_resolves_to_a_private_address_the_second_time_reaches_only_the_checked_one() {
        let public = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = public.local_addr().unwrap().port();
        let private = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let host = format!("rebound.test:{port}");
        serve(public, host.clone());
        serve(private, host.clone());
        let fetch = async |path: &str| {
            let lookups = Arc::new(AtomicU8::new(0));
            let count = Arc::clone(&lookups);
            let names = CheckedNames {
                look_up: move |_| {
                    let last = 1 + count.fetch_add(1, Ordering::Relaxed);
                    async move { Ok(vec![SocketAddr::from(([127, 0, 0, last], 0))]) }
                },
                allows: |address| address == IpAddr::from([127, 0, 0, 1]),
            };
            let http = HttpMediaFetcher {
                public: Arc::new(client_of(names).unwrap().into()),
                ..HttpMediaFetcher::default()
            };
            let budget = FetchBudget::new(FetchRules::hosts(["rebound.test"]).allow_http());
            let url = format!("http://{host}{path}");
            let fetched = http.get(&budget.begin(&url, 100).unwrap()).await;
            (fetched, lookups.load(Ordering::Relaxed))
        };

        let (fetched, lookups) = fetch("/").await;
        assert_eq!(
            (fetched.unwrap().bytes.as_slice(), lookups),
            (&b"127.0.0.1"[..], 1)
        );

        let (redirected, lookups) = fetch("/away").await;
        let error = redirected.unwrap_err();
        assert!(error.message().contains("no public address"), "{error}");
        assert_eq!(lookups, 2);
    }
}
