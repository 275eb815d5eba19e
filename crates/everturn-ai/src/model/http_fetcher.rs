//! Fetching media over HTTP.

use std::error::Error as StdError;
use std::net::IpAddr;
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

/// A [`MediaFetcher`] over HTTP that checks every address it connects to, uses no proxy and quotes nothing of a response in its errors.
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
                    // Where it leads is nothing for the caller.
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
        // An address in place of a name is not resolved, so it is checked here. The parser has put it into its usual form.
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
        let built = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            // A connection is made anew, and its address checked, for every request.
            .pool_max_idle_per_host(0)
            .dns_resolver(CheckedNames(rules.clone()))
            .build();
        let built = built.map_err(Error::foreign)?;
        Ok(client.get_or_init(|| built))
    }
}

/// Resolves names to those of their addresses that are allowed. The connection is made to one of these, so a name that resolves
/// differently a moment later makes no difference.
struct CheckedNames(FetchRules);

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let rules = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<_> = found.filter(|found| rules.allows_address(found.ip())).collect();
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

/// Reads a body as it arrives, no more of it than is allowed.
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
