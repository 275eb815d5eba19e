//! One JSON object per line.

use everturn_core::{Error, Result, Status};
use serde_json::Value;

use crate::service::{Body, Service, sample};

/// The longest line.
const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// The JSON values on the lines of a body, as they arrive. Blank lines are skipped; the last line needs no
/// line end.
pub(crate) struct JsonLines<'a> {
    service: &'a Service,
    body: Body,
    buffer: Vec<u8>,
    /// The processed part of the buffer.
    start: usize,
    /// The part of the buffer without a line end.
    scanned: usize,
    has_ended: bool,
    has_values: bool,
}

impl<'a> JsonLines<'a> {
    pub(crate) fn new(service: &'a Service, body: Body) -> Self {
        Self {
            service,
            body,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            has_ended: false,
            has_values: false,
        }
    }

    /// Returns the next value; `None` when the body has ended.
    ///
    /// # Errors
    /// The body's error; `UNAVAILABLE` for a line that is not JSON, or `FAILED_PRECONDITION` if it is the
    /// first.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            while let Some(line) = self.line() {
                let line = self.buffer[line].trim_ascii();
                if !line.is_empty() {
                    let value = self.read(line)?;
                    self.has_values = true;
                    return Ok(Some(value));
                }
            }
            if self.has_ended {
                return Ok(None);
            }
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(self
                    .body
                    .broken(Status::Unavailable, "a line of the stream is too long"));
            }
            match self.body.chunk().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => self.has_ended = true,
            }
        }
    }

    fn line(&mut self) -> Option<std::ops::Range<usize>> {
        let unseen = &self.buffer[self.scanned..];
        let end = match unseen.iter().position(|byte| *byte == b'\n') {
            Some(length) => self.scanned + length,
            None if self.has_ended && self.start < self.buffer.len() => self.buffer.len(),
            None => {
                self.scanned = self.buffer.len();
                return None;
            }
        };
        let line = self.start..end;
        self.start = (end + 1).min(self.buffer.len());
        self.scanned = self.start;
        Some(line)
    }

    fn read(&self, line: &[u8]) -> Result<Value> {
        serde_json::from_slice(line).map_err(|error| {
            let text = sample(&String::from_utf8_lossy(line));
            if self.has_values {
                let message = format!("a line of the stream cannot be read ({error}): {text}");
                return self.body.broken(Status::Unavailable, message);
            }
            let address = self.service.base_url();
            let message = format!(
                "no stream of JSON came from {address}; is it the right base URL? It answered: {text}"
            );
            self.body.broken(Status::FailedPrecondition, message)
        })
    }

    /// Returns the error that a value describes.
    pub(crate) fn failure(&self, value: &Value) -> Error {
        self.service.failure(value, &self.body)
    }

    /// Returns the error for a stream that ended before its terminal value, whose name is part of the
    /// message.
    pub(crate) fn truncated(&self, terminal: &str) -> Error {
        let message = format!("the stream ended before {terminal}, so the answer is incomplete");
        self.body.broken(Status::Unavailable, message)
    }
}
