//! The frames of the WebSocket protocol.

use everturn_agent::{AgentInit, AgentInput, SnapshotStatus};
use everturn_core::{Error, Result, Status};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::events::Event;
use crate::request::decoded;
use crate::wire_error::error_in;

/// A frame that the client sends.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClientFrame<'a> {
    Init(&'a AgentInit),
    Input(&'a AgentInput),
    Close(bool),
    Cancel(bool),
    Abort(&'a str),
}

impl ClientFrame<'_> {
    pub(super) const CLOSE: Self = Self::Close(true);
    pub(super) const CANCEL: Self = Self::Cancel(true);

    /// Serialises the frame.
    ///
    /// # Errors
    /// `INTERNAL` if a value in it has no JSON form.
    pub(super) fn text(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }
}

/// A frame that the server sends.
#[derive(Debug)]
pub(super) enum ServerFrame {
    /// An event of the open conversation.
    Event(Event),
    /// The answer to an abort.
    Aborted(Aborted),
    /// A frame of a later version of the protocol.
    Unknown,
}

/// The outcome of an abort.
#[derive(Debug)]
pub(super) struct Aborted {
    pub(super) id: String,
    /// The status of the run afterwards; `None` if there is no such run.
    pub(super) outcome: Result<Option<SnapshotStatus>>,
}

impl ServerFrame {
    /// Parses a frame.
    ///
    /// # Errors
    /// `INTERNAL` if it is not of this protocol.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let wrong = |problem: &dyn std::fmt::Display| {
            Error::internal(format!("the server sent an invalid frame: {problem}"))
        };
        let mut envelope: Map<String, Value> = serde_json::from_str(text).map_err(|error| wrong(&error))?;
        match envelope.shift_remove("aborted") {
            Some(Value::Object(aborted)) => Aborted::of(aborted)
                .map(Self::Aborted)
                .ok_or_else(|| wrong(&"the snapshot id of the aborted run is missing")),
            Some(_) => Err(wrong(&"the answer to an abort is not an object")),
            None => Ok(Event::within(envelope).map_or(Self::Unknown, Self::Event)),
        }
    }
}

impl Aborted {
    fn of(mut fields: Map<String, Value>) -> Option<Self> {
        let Some(Value::String(id)) = fields.shift_remove("snapshotId") else {
            return None;
        };
        let error = fields.shift_remove("error").filter(|error| !error.is_null());
        let outcome = match error.map(|error| error_in(error, Status::Unknown)) {
            Some(error) if error.status() == Status::NotFound => Ok(None),
            Some(error) => Err(error),
            None => match fields.shift_remove("status") {
                Some(Value::String(name)) => Ok(Some(SnapshotStatus::from_server(&name))),
                status => decoded(status.unwrap_or_default()),
            },
        };
        Some(Self { id, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aborted(text: &str) -> Aborted {
        match ServerFrame::parse(text).unwrap() {
            ServerFrame::Aborted(aborted) => aborted,
            other => panic!("{other:?} answers no abort"),
        }
    }

    #[test]
    fn answers_to_aborts_are_read() {
        let stopped = aborted(r#"{"aborted":{"snapshotId":"a","status":"aborted"}}"#);
        let missing =
            aborted(r#"{"aborted":{"snapshotId":"a","error":{"status":"NOT_FOUND","message":"?"}}}"#);
        let refused =
            aborted(r#"{"aborted":{"snapshotId":"a","error":{"status":"UNIMPLEMENTED","message":"no"}}}"#);
        let odd = aborted(r#"{"aborted":{"snapshotId":"a","status":7}}"#);

        assert_eq!(stopped.id, "a");
        assert_eq!(stopped.outcome.unwrap(), Some(SnapshotStatus::Aborted));
        let winding_down = aborted(r#"{"aborted":{"snapshotId":"a","status":"aborting"}}"#);
        assert_eq!(winding_down.outcome.unwrap(), Some(SnapshotStatus::Aborting));
        assert_eq!(missing.outcome.unwrap(), None);
        assert_eq!(refused.outcome.unwrap_err().status(), Status::Unimplemented);
        assert_eq!(odd.outcome.unwrap_err().status(), Status::Internal);
    }

    #[test]
    fn frames_of_a_later_version_are_passed_over_and_nonsense_is_refused() {
        assert!(matches!(
            ServerFrame::parse(r#"{"later":1}"#),
            Ok(ServerFrame::Unknown)
        ));
        for text in [
            "",
            "[]",
            "\"message\"",
            "{",
            r#"{"aborted":1}"#,
            r#"{"aborted":{}}"#,
        ] {
            assert_eq!(
                ServerFrame::parse(text).unwrap_err().status(),
                Status::Internal,
                "{text}"
            );
        }
    }
}
