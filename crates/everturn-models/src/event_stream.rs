//! The events of a streamed response.

use everturn_core::sse::{Decoder, Record, TooLarge};
use everturn_core::{Error, Result, Status};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::service::{Body, Service, sample};

/// The largest event: images and audio are sent in one line.
const MAX_EVENT_BYTES: usize = 32 * 1024 * 1024;

/// The part of a body that is kept for the error if it contains no event.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The events of a body, as they arrive: server-sent events, or one JSON object per line.
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
        Self::decoded_by(Decoder::new(MAX_EVENT_BYTES), service, body)
    }

    /// Reads one JSON object per line.
    pub(crate) fn json_lines(service: &'a Service, body: Body) -> Self {
        Self::decoded_by(Decoder::new(MAX_EVENT_BYTES).with_variants(), service, body)
    }

    fn decoded_by(decoder: Decoder, service: &'a Service, body: Body) -> Self {
        Self {
            service,
            body,
            decoder,
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
    pub(crate) async fn next(&mut self) -> Result<Option<Record>> {
        loop {
            let too_long = |TooLarge| self.body.broken(Status::Unavailable, "an event is too long");
            let event = self.decoder.pop().map_err(too_long)?;
            if event.is_some() {
                self.is_stream = true;
                self.head.clear();
                return Ok(event);
            }
            if self.has_ended {
                return Ok(None);
            }
            let Some(bytes) = self.body.chunk().await? else {
                self.decoder.finish();
                self.has_ended = true;
                continue;
            };
            let room = MAX_HEAD_BYTES.saturating_sub(self.head.len());
            if !self.is_stream && room > 0 {
                self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            self.decoder.feed(&bytes);
        }
    }

    /// Parses the JSON of an event.
    ///
    /// # Errors
    /// `UNAVAILABLE` if it is not JSON of that type.
    pub(crate) fn read<T: DeserializeOwned>(&self, event: &Record) -> Result<T> {
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

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes the JSON events of a stream that arrives in pieces.
    pub(crate) fn values<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<serde_json::Value> {
        let mut decoder = Decoder::new(MAX_EVENT_BYTES);
        let mut values = Vec::new();
        for piece in pieces {
            decoder.feed(piece);
            while let Ok(Some(event)) = decoder.pop() {
                values.push(serde_json::from_slice(&event.data).expect("the events of the stream are JSON"));
            }
        }
        values
    }

    /// Splits a stream into pieces of these sizes, repeatedly.
    pub(crate) fn pieces<'a>(stream: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = stream;
        sizes.iter().cycle().map_while(move |size| {
            let (piece, others) = rest.split_at_checked(*size).unwrap_or((rest, &[]));
            rest = others;
            (!piece.is_empty()).then_some(piece)
        })
    }

    fn decoded(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<(String, String)> {
        let mut decoder = Decoder::new(MAX_EVENT_BYTES);
        let mut events = Vec::new();
        for piece in pieces {
            decoder.feed(piece.as_ref());
            while let Some(event) = decoder.pop().unwrap() {
                events.push(event);
            }
        }
        decoder.finish();
        events.extend(decoder.pop().unwrap());
        let text = |event: Record| (event.name, String::from_utf8(event.data).unwrap());
        events.into_iter().map(text).collect()
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(
            lines in prop::collection::vec("(data: ?|event: |: |)[a-zäß€🥕]{0,6}(\n|\r\n|\r|\n\n|\r\n\r\n)", 0..20),
            cuts in prop::collection::vec(1_usize..9, 1..40),
        ) {
            let stream = lines.concat().into_bytes();

            prop_assert_eq!(decoded(pieces(&stream, &cuts)), decoded([&stream]));
        }
    }
}
