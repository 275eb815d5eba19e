//! The body of an answer, as it comes.

use std::time::Duration;

use bytes::Bytes;
use everturn_core::{Error, Status};
use reqwest::Response;
use tokio::time::timeout;

use super::failure::request_id;
use super::{ApiKey, Failure};

/// The bytes of an answer. Dropping it closes the connection, and the provider stops working.
#[derive(Debug)]
pub(crate) struct Body {
    response: Response,
    first: Option<Bytes>,
    silence: Duration,
    provider: String,
    /// The keys of the request, which errors must not show.
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

    /// The next bytes; `None` at the end.
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

    /// The provider's id of the request, for people who ask it what went wrong.
    pub(crate) fn request_id(&self) -> Option<String> {
        request_id(self.response.headers())
    }

    /// An error about an answer that began and went wrong.
    pub(crate) fn broken(&self, status: Status, message: impl Into<String>) -> Error {
        let is_retryable = status != Status::FailedPrecondition;
        self.failed(Failure::new(status, is_retryable, message))
    }

    /// The error of a call that failed after its answer began.
    pub(super) fn failed(&self, mut failure: Failure) -> Error {
        failure.request_id = failure.request_id.or_else(|| self.request_id());
        failure.into_error(&self.provider, &self.keys)
    }
}

/// What went wrong, from the outside in. The address is left out: it may hold credentials.
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
