//! Streams of JSON lines: a call whose inputs or chunks are the lines of a file.
//!
//! A file passes through line by line in either direction, so exports and imports of any size need bounded
//! memory.

use std::io;
use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use bytes::{Bytes, BytesMut};
use everturn_core::offload::{HEAVY, offload};
use everturn_core::{Error, JsonConnection, Result, Sender};
use http_body_util::BodyExt;
use serde_json::Value;

use super::Mounted;
use crate::action_call::CallEvents;
use crate::counted_body::Held;
use crate::error_body::{Refusal, json_response};
use crate::event::Event;
use crate::permits::Permit;
use crate::request_body::discard;
use crate::{Limits, RouteKind};

/// The type of a body that is a file of JSON lines.
pub(crate) const JSON_LINES: &str = "application/x-ndjson";

/// Returns whether the body of a request is a file of JSON lines.
pub(super) fn are_sent(headers: &HeaderMap) -> bool {
    names_lines(headers.get(header::CONTENT_TYPE))
}

/// Returns whether a request asks for a file of JSON lines.
pub(super) fn are_wanted(headers: &HeaderMap) -> bool {
    names_lines(headers.get(header::ACCEPT))
}

fn names_lines(value: Option<&HeaderValue>) -> bool {
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split([',', ';'])
        .any(|part| part.trim().eq_ignore_ascii_case(JSON_LINES))
}

impl Mounted {
    /// Returns whether the action takes the lines of a file, one input each.
    pub(crate) fn takes_lines(&self) -> bool {
        self.route.kind == RouteKind::Archive && self.action.descriptor().init_schema.is_some()
    }

    /// Returns whether the chunks of the action are the lines of a file.
    pub(crate) fn gives_lines(&self) -> bool {
        self.route.kind == RouteKind::Archive
            && self.action.descriptor().stream_schema.is_some()
            && !self.takes_lines()
    }

    /// Runs the action on the lines of a body.
    pub(super) async fn take_lines(
        self: &Arc<Self>,
        uri: &Uri,
        context: &everturn_core::Context,
        body: Body,
        held: Held,
    ) -> Result<Value, Refusal> {
        let connection = self.action.connect_json(init_of(uri)?, context)?;
        let (this, limits) = (Arc::clone(self), self.shared.limits.clone());
        // A separate task continues if the caller disconnects, so that the action receives the end of the
        // lines.
        let feeding = self.shared.handle.tasks().spawn(async move {
            let outcome = feed(connection, body, &limits, &held.permit).await;
            drop(this);
            outcome
        });
        feeding.await.map_err(Error::foreign)?
    }
}

/// Returns the value that opens the action: the query parameter `init`.
fn init_of(uri: &Uri) -> Result<Option<Value>> {
    let query = uri.query().unwrap_or_default();
    let init = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "init");
    init.map(|(_, init)| {
        serde_json::from_str(&init).map_err(|error| {
            Error::invalid_argument(format!("the query parameter 'init' must be JSON: {error}")).with_public()
        })
    })
    .transpose()
}

/// Sends the lines of a body to an action and returns its output.
async fn feed(
    mut connection: JsonConnection,
    mut body: Body,
    limits: &Limits,
    permit: &Permit,
) -> Result<Value, Refusal> {
    let sender = connection.sender();
    let refusal = match send_lines(&sender, &mut body, limits, permit).await {
        Ok(()) => None,
        Err(refusal) => {
            // All lines may have arrived although the body has not ended. An invalid extra line keeps the
            // action from treating the file as complete.
            let _ = sender.send(Value::Null).await;
            Some(refusal)
        }
    };
    sender.close();
    let (output, ()) = tokio::join!(connection.output(), discard(body));
    match refusal {
        Some(refusal) => Err(refusal),
        None => Ok(output?),
    }
}

/// Sends the lines of a body as they arrive, as long as the action takes them.
async fn send_lines(
    sender: &Sender<Value>,
    body: &mut Body,
    limits: &Limits,
    permit: &Permit,
) -> Result<(), Refusal> {
    let mut lines = Lines::new(limits);
    loop {
        while let Some(line) = lines.next()? {
            let _values = permit.hold(line.len() + limits.parsed_size(&line).await?)?;
            let is_heavy = line.len() > HEAVY;
            let parse = move || parsed(&line);
            let line = if is_heavy { offload(parse).await } else { parse() }?;
            // An action that accepts no more lines has failed, and returns the reason.
            if sender.send(line).await.is_err() {
                return Ok(());
            }
        }
        if lines.is_over {
            return Ok(());
        }
        match tokio::time::timeout(limits.body_time, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    lines.add(&data)?;
                }
            }
            Ok(None) => lines.finish(),
            Ok(Some(Err(_))) => {
                let error = Error::invalid_argument("the body broke off or is not framed as announced");
                return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
            }
            Err(_) => {
                let message = format!(
                    "nothing of the body arrived for {} seconds",
                    limits.body_time.as_secs_f64()
                );
                let error = Error::deadline_exceeded(message);
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, error));
            }
        }
    }
}

/// The lines of a body, as far as it has arrived.
struct Lines {
    waiting: BytesMut,
    total: u64,
    max_line: usize,
    max_total: u64,
    is_over: bool,
}

impl Lines {
    fn new(limits: &Limits) -> Self {
        Self {
            waiting: BytesMut::new(),
            total: 0,
            max_line: limits.body_bytes,
            max_total: limits.lines_bytes,
            is_over: false,
        }
    }

    fn add(&mut self, data: &Bytes) -> Result<(), Refusal> {
        self.total += data.len() as u64;
        if self.total > self.max_total {
            let message = format!(
                "the body is larger than the {} bytes that are allowed",
                self.max_total
            );
            return Err(too_large(message));
        }
        self.waiting.extend_from_slice(data);
        Ok(())
    }

    fn finish(&mut self) {
        self.is_over = true;
    }

    /// Returns the next line that is complete and not empty.
    fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let end = self.waiting.iter().position(|byte| *byte == b'\n');
            let line = match end {
                Some(end) => self.waiting.split_to(end + 1),
                None if self.is_over => self.waiting.split(),
                None => BytesMut::new(),
            };
            if line.len().max(self.waiting.len() * usize::from(end.is_none())) > self.max_line {
                let message = format!(
                    "a line is larger than the {} bytes that are allowed",
                    self.max_line
                );
                return Err(too_large(message));
            }
            if line.is_empty() {
                return Ok(None);
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line.freeze()));
            }
        }
    }
}

fn parsed(line: &[u8]) -> Result<Value> {
    serde_json::from_slice(line).map_err(|error| {
        Error::invalid_argument(format!("a line of the body is not JSON: {error}")).with_public()
    })
}

fn too_large(message: String) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, Error::invalid_argument(message))
}

/// The response of JSON lines: each chunk is a line. A call that fails before its first chunk fails the
/// request; a later failure breaks the body off.
pub(super) async fn respond(mut events: CallEvents, mut held: Held) -> Response<Body> {
    held.meter.stream_opened();
    let first = std::future::poll_fn(|cx| events.poll_next(cx)).await;
    if let Some(Event::Error(error)) = &first {
        return json_response(crate::error_body::http_status(error), error);
    }
    let mut first = first;
    let lines = futures::stream::poll_fn(move |cx| {
        let event = match first.take() {
            Some(event) => Poll::Ready(Some(event)),
            None => events.poll_next(cx),
        };
        event.map(|event| match event {
            Some(Event::Message(line)) => {
                // Named as a whole, so that the closure captures all of it.
                let held = &held;
                held.meter.chunk();
                Some(Ok(Bytes::from(format!("{line}\n"))))
            }
            Some(Event::Error(error)) => Some(Err(io::Error::other(error.message))),
            Some(Event::Result(_)) | None => None,
        })
    });
    let mut response = Response::new(Body::from_stream(lines));
    let lines = HeaderValue::from_static(JSON_LINES);
    response.headers_mut().insert(header::CONTENT_TYPE, lines);
    response
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_cut_where_they_end_whatever_arrives_together() {
        let mut lines = Lines::new(&Limits::default());
        let mut found = Vec::new();
        for part in ["{\"a\"", ":1}\n\n[2]\n", "3"] {
            lines.add(&Bytes::from(part)).unwrap();
            found.extend(std::iter::from_fn(|| {
                lines.next().unwrap().map(|line| parsed(&line).unwrap())
            }));
        }
        assert_eq!(found, [json!({"a": 1}), json!([2])]);

        lines.finish();

        assert_eq!(lines.next().unwrap().unwrap(), "3");
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn a_line_and_a_body_are_bounded() {
        let limits = Limits::default().body_bytes(4).lines_bytes(8);
        let mut lines = Lines::new(&limits);
        lines.add(&Bytes::from_static(b"12345")).unwrap();

        assert!(lines.next().is_err());
        assert!(lines.add(&Bytes::from_static(b"6789")).is_err());
    }
}
