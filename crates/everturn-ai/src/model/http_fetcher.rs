//! Fetching media over HTTP.

use everturn_core::{Error, HandlerResult};
use futures::future::BoxFuture;
use reqwest::{Client, Response, header};

use super::{FetchedMedia, MediaFetcher};

/// How much of an error response's text is quoted.
const MAX_REFUSAL_BYTES: usize = 200;

/// A [`MediaFetcher`] over HTTP.
#[derive(Debug, Clone, Default)]
pub struct HttpMediaFetcher {
    client: Client,
}

impl HttpMediaFetcher {
    /// Creates a fetcher with a client of your own, for instance one with a proxy or a time limit.
    pub fn with_client(client: Client) -> Self {
        Self { client }
    }

    async fn get(&self, url: &str, max_bytes: usize) -> HandlerResult<FetchedMedia> {
        let response = self.client.get(url).send().await?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(refused(response).await.into());
        }
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let content_type = content_type
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        Ok(FetchedMedia {
            content_type,
            bytes: read(response, max_bytes).await?,
        })
    }
}

async fn read(mut response: Response, max_bytes: usize) -> HandlerResult<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if bytes.len() + chunk.len() > max_bytes {
            return Err(Error::invalid_argument(format!("it is larger than {max_bytes} bytes")).into());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

async fn refused(mut response: Response) -> Error {
    let mut body = Vec::new();
    while body.len() < MAX_REFUSAL_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(MAX_REFUSAL_BYTES);
    let status = response.status();
    Error::invalid_argument(format!(
        "the server answered {status}: {}",
        String::from_utf8_lossy(&body)
    ))
}

impl MediaFetcher for HttpMediaFetcher {
    fn fetch<'a>(&'a self, url: &'a str, max_bytes: usize) -> BoxFuture<'a, HandlerResult<FetchedMedia>> {
        Box::pin(self.get(url, max_bytes))
    }
}
