//! The events of a stream, in the forms that servers of this protocol use.
//!
//! | server | form |
//! |---|---|
//! | Everturn, Go, FastAPI | `data: {"message":…}`, then `data: {"result":…}` or `data: {"error":…}` |
//! | Express, Fastify, fetch | errors as `error: {"error":…}`; some of them as `text/plain` |
//! | Next.js | errors as `error: {"status":…,"message":…}`, and `END` after the last record |
//! | others | objects on separate lines, errors wrapped twice, CRLF |

use everturn_core::sse::{Record, RecordKind};
use everturn_core::{Error, Result, Status};
use serde_json::{Map, Value};

use crate::wire_error::error_in;

/// An event of a stream.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A chunk.
    Chunk(Value),
    /// The output, which ends the stream.
    Output(Value),
    /// The error that ends the stream.
    Failure(Error),
}

impl Event {
    /// Parses the event in a record; `None` for an unknown kind.
    ///
    /// # Errors
    /// `INTERNAL` if the record does not conform to this protocol.
    pub(crate) fn of(record: &Record) -> Result<Option<Self>> {
        let value = serde_json::from_slice(&record.data);
        if record.kind == RecordKind::Error {
            let value = value.unwrap_or_else(|_| String::from_utf8_lossy(&record.data).into());
            return Ok(Some(Self::Failure(error_in(value, Status::Unknown))));
        }
        match value {
            Ok(Value::Object(envelope)) => Ok(Self::within(envelope)),
            Ok(_) => Err(not_an_event("it is not an object")),
            Err(error) => Err(not_an_event(error)),
        }
    }

    /// Parses the event in an envelope; `None` for an unknown kind.
    pub(crate) fn within(mut envelope: Map<String, Value>) -> Option<Self> {
        if let Some(error) = envelope.shift_remove("error").filter(|error| !error.is_null()) {
            return Some(Self::Failure(error_in(error, Status::Unknown)));
        }
        if let Some(chunk) = envelope.shift_remove("message") {
            return Some(Self::Chunk(chunk));
        }
        // JavaScript omits an undefined output.
        let is_empty = envelope.is_empty();
        let output = envelope.shift_remove("result");
        output.or(is_empty.then_some(Value::Null)).map(Self::Output)
    }
}

fn not_an_event(problem: impl std::fmt::Display) -> Error {
    Error::internal(format!("the server sent an invalid event: {problem}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: RecordKind, data: &str) -> Result<Option<Event>> {
        Event::of(&Record {
            kind,
            name: String::new(),
            data: data.into(),
            id: None,
        })
    }

    fn failure(kind: RecordKind, data: &str) -> String {
        match event(kind, data) {
            Ok(Some(Event::Failure(error))) => format!("{error:?}"),
            other => panic!("{other:?} is no failure"),
        }
    }

    #[test]
    fn every_form_of_an_error_is_read() {
        use RecordKind::{Data, Error};
        let expected = "NOT_FOUND: nope";

        assert_eq!(
            failure(Data, r#"{"error":{"status":"NOT_FOUND","message":"nope"}}"#),
            expected
        );
        assert_eq!(
            failure(Error, r#"{"error":{"status":"NOT_FOUND","message":"nope"}}"#),
            expected
        );
        assert_eq!(
            failure(Error, r#"{"status":"NOT_FOUND","message":"nope"}"#),
            expected
        );
        assert_eq!(
            failure(
                Data,
                r#"{"error":{"error":{"status":"NOT_FOUND","message":"nope"}}}"#
            ),
            expected
        );
        assert_eq!(failure(Data, r#"{"error":"NOT_FOUND: nope"}"#), expected);
        assert_eq!(failure(Error, "NOT_FOUND: nope"), expected);
        assert_eq!(failure(Error, "it broke"), "UNKNOWN: it broke");
    }

    #[test]
    fn an_output_may_be_null_and_may_be_absent() {
        for data in [r#"{"result":null}"#, "{}"] {
            let Ok(Some(Event::Output(output))) = event(RecordKind::Data, data) else {
                panic!("{data} is an output");
            };
            assert_eq!(output, json!(null));
        }
    }

    #[test]
    fn an_event_of_a_later_version_is_passed_over_and_nonsense_is_refused() {
        assert!(matches!(event(RecordKind::Data, r#"{"later":1}"#), Ok(None)));
        assert_eq!(
            event(RecordKind::Data, "[]").unwrap_err().status(),
            Status::Internal
        );
        assert_eq!(
            event(RecordKind::Data, "{\"mess").unwrap_err().status(),
            Status::Internal
        );
    }
}
