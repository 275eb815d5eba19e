//! The body of a response, as it arrives.

use std::time::Duration;

use bytes::Bytes;
use everturn_core::{Error, Status};
use reqwest::Response;
use tokio::time::timeout;

use super::failure::request_id;
use super::{ApiKey, Failure};

/// The bytes of a response. Dropping it closes the connection, and the provider stops working.
#[derive(Debug)]
pub(crate) struct Body {
    response: Response,
    first: Option<Bytes>,
    silence: Duration,
    provider: String,
    /// The keys of the request, which errors must not contain.
    keys: Vec<ApiKey>,
}

impl Body {
    pub(super) fn new(
        response: Response,
        first: Option<Bytes>,
        silence: Duration,
        provider: &str,
        keys: Vec<ApiKey>,
    ) -> Self {
        Self {
            response,
            first,
            silence,
            provider: provider.to_owned(),
            keys,
        }
    }

    /// Returns the next bytes; `None` at the end.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the connection breaks, `DEADLINE_EXCEEDED` if the provider is silent for too long.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        match timeout(self.silence, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => Err(self.broken(
                Status::Unavailable,
                format!("the answer was cut: {}", causes(&error)),
            )),
            Err(_) => {
                let message = format!("nothing came for {:?} in the middle of the answer", self.silence);
                Err(self.broken(Status::DeadlineExceeded, message))
            }
        }
    }

    /// Returns the provider's id of the request, for support requests.
    pub(crate) fn request_id(&self) -> Option<String> {
        request_id(self.response.headers())
    }

    /// Returns an error about a response that failed after its start.
    pub(crate) fn broken(&self, status: Status, message: impl Into<String>) -> Error {
        let is_retryable = status != Status::FailedPrecondition;
        self.failed(Failure::new(status, is_retryable, message))
    }

    /// Returns the error of a call that failed after its response started.
    pub(super) fn failed(&self, mut failure: Failure) -> Error {
        failure.request_id = failure.request_id.or_else(|| self.request_id());
        failure.into_error(&self.provider, &self.keys)
    }
}

/// Returns the causes of a failure, outermost first. The address is omitted, because it may contain
/// credentials.
pub(super) fn causes(error: &reqwest::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    let first = std::error::Error::source(error);
    for cause in std::iter::successors(first, |cause| cause.source()) {
        let text = cause.to_string();
        if !words.iter().any(|known| known.contains(&text)) {
            words.push(text);
        }
    }
    if words.is_empty() {
        words.push("the connection failed".to_owned());
    }
    words.join(": ")
}
