//! Requests to a server, their failures and retries.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use everturn_core::{Context, Error, Result, Status};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::Settings;
use crate::wire_error::refusal;

/// The maximum number of bytes read from the body of an error response.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// A request that failed, and whether it may be sent again.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    pub(crate) kind: FailureKind,
}

/// The kind of a failed request, which decides whether it is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The request did not reach the server.
    Unsent,
    /// The request may have reached the server, and its outcome is unknown.
    Lost,
    /// The server, or a proxy in front of it, is temporarily unavailable.
    Busy,
    /// The request was answered or cannot be sent, so a retry is useless.
    Refused,
}

/// Whether a failed request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The request is idempotent.
    Always,
    /// The request is not idempotent, so it is repeated only if it did not reach the server.
    Unsent,
}

impl Failed {
    pub(crate) fn new(kind: FailureKind, error: Error) -> Self {
        Self { error, kind }
    }

    pub(crate) fn may_repeat(&self, repeat: Repeat) -> bool {
        match (self.kind, repeat) {
            (FailureKind::Refused, _) => false,
            (FailureKind::Unsent, _) | (_, Repeat::Always) => true,
            (_, Repeat::Unsent) => false,
        }
    }
}

/// Returns a URL for messages, without credentials and query, which may contain secrets.
pub(crate) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// A request: an address, headers and a body.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) url: Url,
    pub(crate) body: Bytes,
    pub(crate) accept: &'static str,
    /// Headers of this request only.
    pub(crate) extra: HeaderMap,
}

impl Request {
    pub(crate) fn new(url: &Url, body: &impl serde::Serialize) -> Result<Self> {
        Ok(Self {
            url: url.clone(),
            body: serde_json::to_vec(body)?.into(),
            accept: "application/json",
            extra: HeaderMap::new(),
        })
    }
}

impl Settings {
    /// Sends a request and waits for the head of a successful response.
    pub(crate) async fn send(&self, request: &Request, context: &Context) -> Result<Response, Failed> {
        let refused = |error| Failed::new(FailureKind::Refused, error);
        let mut headers = self.headers.get(context).await.map_err(refused)?;
        headers.extend(request.extra.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(request.accept));
        let post = self.http.post(request.url.clone()).headers(headers);
        self.answered(&request.url, post.body(request.body.clone())).await
    }

    /// Waits for the head of a successful response.
    pub(crate) async fn answered(&self, url: &Url, request: RequestBuilder) -> Result<Response, Failed> {
        let response = self.head(url, request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refused(response).await)
    }

    /// Waits for the head of a response of any status.
    pub(crate) async fn head(&self, url: &Url, request: RequestBuilder) -> Result<Response, Failed> {
        match tokio::time::timeout(self.silence, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(unanswered(url, error)),
            Err(_) => Err(self.silent(url)),
        }
    }

    /// Sends a request, reads the whole response and returns its `result`; null if it has none.
    pub(crate) async fn call(&self, request: &Request, context: &Context) -> Result<Value, Failed> {
        let mut response = self.send(request, context).await?;
        let body = self.read(&mut response).await?;
        result_in(&body).map_err(|error| Failed::new(FailureKind::Refused, error))
    }

    /// Calls with retries, each attempt for no longer than `timeout`.
    pub(crate) async fn call_with(
        &self,
        request: &Request,
        context: &Context,
        repeat: Repeat,
        timeout: Option<Duration>,
    ) -> Result<Value> {
        let mut failures = 0;
        loop {
            let call = self.call(request, context);
            let outcome = match timeout {
                Some(timeout) => tokio::time::timeout(timeout, call)
                    .await
                    .unwrap_or_else(|_| Err(out_of_time(&request.url, timeout))),
                None => call.await,
            };
            match outcome {
                Ok(value) => return Ok(value),
                Err(failed) => self.wait_after(failed, &mut failures, repeat).await?,
            }
        }
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// The error of the failed attempt, if no other may follow.
    pub(crate) async fn wait_after(&self, failed: Failed, failures: &mut u32, repeat: Repeat) -> Result<()> {
        let Some(delay) = self
            .retries
            .delay(*failures)
            .filter(|_| failed.may_repeat(repeat))
        else {
            return Err(failed.error);
        };
        tokio::time::sleep(delay).await;
        *failures += 1;
        Ok(())
    }

    /// Returns the next bytes of a response; `None` after the last.
    pub(crate) async fn next_bytes(&self, response: &mut Response) -> Result<Option<Bytes>, Failed> {
        match tokio::time::timeout(self.silence, response.chunk()).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(broken(response.url(), error)),
            Err(_) => Err(self.silent(response.url())),
        }
    }

    /// Reads the whole body of a response.
    pub(crate) async fn read(&self, response: &mut Response) -> Result<Bytes, Failed> {
        let mut body = BytesMut::new();
        while let Some(bytes) = self.next_bytes(response).await? {
            if body.len() + bytes.len() > self.max_bytes {
                return Err(Failed::new(FailureKind::Refused, too_large(self.max_bytes)));
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body.freeze())
    }

    pub(crate) async fn refused(&self, mut response: Response) -> Failed {
        let mut body = BytesMut::new();
        // An error response whose body cannot be read is still an error response.
        while body.len() < MAX_REFUSAL_BYTES
            && let Ok(Some(bytes)) = self.next_bytes(&mut response).await
        {
            body.extend_from_slice(&bytes);
        }
        body.truncate(MAX_REFUSAL_BYTES);
        let error = refusal(
            response.status(),
            content_type(&response).contains("html"),
            &body.freeze(),
        );
        let kind = match response.status() {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => FailureKind::Busy,
            _ => FailureKind::Refused,
        };
        Failed::new(kind, error)
    }

    fn silent(&self, url: &Url) -> Failed {
        let silence = self.silence;
        let message = format!("{} sent nothing for {silence:?}", shown(url));
        Failed::new(FailureKind::Lost, Error::deadline_exceeded(message))
    }
}

pub(crate) fn content_type(response: &Response) -> &str {
    let value = response.headers().get(CONTENT_TYPE);
    value.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

pub(crate) fn too_large(max_bytes: usize) -> Error {
    Error::resource_exhausted(format!(
        "the server sent more than {max_bytes} bytes at once; increase the limit with `ClientBuilder::max_bytes`"
    ))
}

/// Returns the `result` of a response; null if it has none, because JavaScript omits undefined values.
pub(crate) fn result_in(body: &[u8]) -> Result<Value> {
    let wrong = |problem: String| Error::internal(format!("the server sent an invalid reply: {problem}"));
    match serde_json::from_slice(body) {
        Ok(Value::Object(mut fields)) => {
            match fields.shift_remove("error").filter(|error| !error.is_null()) {
                Some(error) => Err(crate::wire_error::error_in(error, Status::Unknown)),
                None => Ok(fields.shift_remove("result").unwrap_or_default()),
            }
        }
        Ok(_) => Err(wrong("it is not an object".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Parses a response as the expected type.
pub(crate) fn decoded<T: DeserializeOwned>(value: Value) -> Result<T> {
    T::deserialize(value)
        .map_err(|error| Error::internal(format!("the server sent a value of an unexpected type: {error}")))
}

/// Returns the innermost cause of an error, which the outer errors do not include.
fn cause(error: &reqwest::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

fn unanswered(url: &Url, error: reqwest::Error) -> Failed {
    let error = error.without_url();
    let (kind, failure) = if error.is_builder() {
        (
            FailureKind::Refused,
            Error::invalid_argument(format!("the request cannot be sent: {}", cause(&error))),
        )
    } else if error.is_connect() {
        (
            FailureKind::Unsent,
            Error::unavailable(format!("cannot reach {}: {}", shown(url), cause(&error))),
        )
    } else {
        (
            FailureKind::Lost,
            Error::unavailable(format!("{} did not answer: {}", shown(url), cause(&error))),
        )
    };
    Failed::new(kind, failure.with_source(error))
}

fn broken(url: &Url, error: reqwest::Error) -> Failed {
    let error = error.without_url();
    let failure = Error::unavailable(format!(
        "the connection to {} broke: {}",
        shown(url),
        cause(&error)
    ));
    Failed::new(FailureKind::Lost, failure.with_source(error))
}

pub(crate) fn out_of_time(url: &Url, timeout: Duration) -> Failed {
    let message = format!("{} did not answer within {timeout:?}", shown(url));
    Failed::new(FailureKind::Lost, Error::deadline_exceeded(message))
}
