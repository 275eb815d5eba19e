//! The server-sent events of a response.

use everturn_core::{Error, Result, Status};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::service::{Body, Service, sample};
use crate::sse::{Decoder, Event, TooLong};

/// The part of a body that is kept for the error if it contains no event.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The server-sent events of a body, as they arrive.
pub(crate) struct Events<'a> {
    service: &'a Service,
    body: Body,
    decoder: Decoder,
    head: Vec<u8>,
    /// Whether an event has arrived.
    is_stream: bool,
    has_ended: bool,
}

impl<'a> Events<'a> {
    pub(crate) fn new(service: &'a Service, body: Body) -> Self {
        Self {
            service,
            body,
            decoder: Decoder::default(),
            head: Vec::new(),
            is_stream: false,
            has_ended: false,
        }
    }

    /// Returns the next event; `None` when the body has ended. The caller decides whether the stream was
    /// complete: [`Events::truncated`] is the error if it was not.
    ///
    /// # Errors
    /// The body's error; `UNAVAILABLE` if an event is too long.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            let decoded = if self.has_ended {
                self.decoder.finish()
            } else {
                self.decoder.next()
            };
            let event =
                decoded.map_err(|TooLong| self.body.broken(Status::Unavailable, "an event is too long"))?;
            if event.is_some() {
                self.is_stream = true;
                self.head.clear();
                return Ok(event);
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.body.chunk().await? {
                Some(bytes) => {
                    let room = MAX_HEAD_BYTES.saturating_sub(self.head.len());
                    if !self.is_stream && room > 0 {
                        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    }
                    self.decoder.feed(&bytes);
                }
                None => self.has_ended = true,
            }
        }
    }

    /// Parses the JSON of an event.
    ///
    /// # Errors
    /// `UNAVAILABLE` if it is not JSON of that type.
    pub(crate) fn read<T: DeserializeOwned>(&self, event: &Event) -> Result<T> {
        serde_json::from_slice(&event.data).map_err(|error| {
            let text = sample(&String::from_utf8_lossy(&event.data));
            let message = format!("an event of the stream cannot be read ({error}): {text}");
            self.body.broken(Status::Unavailable, message)
        })
    }

    /// Returns the error that an event describes.
    pub(crate) fn failure(&self, event: &Value) -> Error {
        self.service.failure(event, &self.body)
    }

    /// Returns whether only white space has arrived.
    pub(crate) fn is_blank(&self) -> bool {
        !self.is_stream && self.head.trim_ascii().is_empty()
    }

    /// Returns the error for a stream that ended before its terminal event, whose name is part of the
    /// message.
    pub(crate) fn truncated(&self, terminal: &str) -> Error {
        if self.is_stream {
            let message = format!("the stream ended before {terminal}, so the answer is incomplete");
            return self.body.broken(Status::Unavailable, message);
        }
        let head = String::from_utf8_lossy(&self.head);
        if let Ok(value) = serde_json::from_str::<Value>(head.trim())
            && value.get("error").is_some_and(|error| !error.is_null())
        {
            return self.failure(&value);
        }
        let what = if head.trim().is_empty() {
            "nothing".to_owned()
        } else {
            sample(&head)
        };
        let address = self.service.base_url();
        let message =
            format!("no event stream came from {address}; is it the right base URL? It answered: {what}");
        self.body.broken(Status::FailedPrecondition, message)
    }

    /// Returns an error about the stream.
    pub(crate) fn broken(&self, status: Status, message: impl Into<String>) -> Error {
        self.body.broken(status, message)
    }
}
