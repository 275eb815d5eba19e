//! The frames of a WebSocket.

use everturn_core::{Error, Exposure};
use serde::Deserialize;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::Limits;
use crate::event::Event;

/// A frame of a client.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClientFrame {
    /// Opens a conversation.
    Init(Value),
    /// One turn's input.
    Input(Value),
    /// Announces that there is no more input.
    Close(True),
    /// Ends the conversation now.
    Cancel(True),
    /// Aborts a background run.
    Abort(String),
}

/// The word `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "bool")]
pub(super) struct True;

impl TryFrom<bool> for True {
    type Error = &'static str;

    fn try_from(value: bool) -> Result<Self, Self::Error> {
        if value { Ok(Self) } else { Err("expected `true`") }
    }
}

impl ClientFrame {
    /// Parses a frame. The parser limits its nesting, and the socket its size.
    pub(super) fn parse(text: &str) -> Result<Self, Ending> {
        serde_json::from_str(text).map_err(|error| {
            let shape = r#"a frame must be {"init": …}, {"input": …}, {"close": true}, {"cancel": true} or {"abort": "<snapshotId>"}"#;
            Ending::fault(CloseCode::Invalid, format!("{shape}: {error}"))
        })
    }

    /// Returns the frame if its lists are within the limits.
    pub(super) fn checked(self, limits: &Limits) -> Result<Self, Ending> {
        let counted = match &self {
            Self::Init(init) => limits.check_counts(None, Some(init)),
            Self::Input(input) => limits.check_counts(Some(input), None),
            _ => Ok(()),
        };
        counted.map_err(|error| Ending::fault(CloseCode::Policy, error.message()))?;
        Ok(self)
    }
}

/// Returns JSON as a frame.
pub(super) fn text(json: String) -> Message {
    Message::Text(json.into())
}

/// The reason for which the server closes a connection.
#[derive(Debug)]
pub(super) struct Ending {
    code: CloseCode,
    reason: &'static str,
    error: Option<Error>,
}

impl Ending {
    /// Creates the ending for a server that shuts down.
    pub(super) fn going_away() -> Self {
        Self {
            code: CloseCode::Away,
            reason: "the server ends",
            error: None,
        }
    }

    /// Creates the ending for a client that has closed the connection already.
    pub(super) fn disconnected() -> Self {
        Self {
            code: CloseCode::Normal,
            reason: "",
            error: None,
        }
    }

    /// Creates the ending for a connection that was silent for too long.
    pub(super) fn silence(reason: &'static str) -> Self {
        Self {
            code: CloseCode::Policy,
            reason,
            error: None,
        }
    }

    /// Creates the ending for a client that broke the protocol.
    pub(super) fn fault(code: CloseCode, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: "see the error before this",
            error: Some(Error::invalid_argument(message).with_public()),
        }
    }

    /// Creates the ending for a client whose frame the server cannot hold now.
    pub(super) fn exhausted(error: Error) -> Self {
        Self {
            code: CloseCode::Again,
            reason: "see the error before this",
            error: Some(error),
        }
    }

    /// Returns the last frame.
    pub(super) fn last_words(self, exposure: Exposure) -> Vec<Message> {
        let error = self.error.map(|error| {
            let wire = error.to_wire(exposure);
            text(Event::Error(wire).to_json())
        });
        let close = Message::Close(Some(CloseFrame {
            code: self.code,
            reason: self.reason.into(),
        }));
        error.into_iter().chain([close]).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_frame_is_an_object_with_one_known_field() {
        let init = ClientFrame::parse(r#"{"init": {"sessionId": "s"}}"#).unwrap();
        let abort = ClientFrame::parse(r#"{"abort": "x"}"#).unwrap();

        assert_eq!(init, ClientFrame::Init(json!({"sessionId": "s"})));
        assert_eq!(abort, ClientFrame::Abort("x".to_owned()));
        assert_eq!(
            ClientFrame::parse(r#"{"close": true}"#).unwrap(),
            ClientFrame::Close(True)
        );
    }

    #[test]
    fn any_other_text_is_a_fault() {
        let deep = format!("{{\"input\":{}1{}}}", "[".repeat(5_000), "]".repeat(5_000));
        for wrong in [
            "",
            "{}",
            "null",
            "[]",
            "\"init\"",
            r#"{"input": 1, "init": 2}"#,
            r#"{"init": 1, "init": 2}"#,
            r#"{"close": false}"#,
            r#"{"cancel": 1}"#,
            r#"{"abort": null}"#,
            r#"{"Init": {}}"#,
            r#"{"input": 1} x"#,
            deep.as_str(),
        ] {
            let ending = ClientFrame::parse(wrong).unwrap_err();

            assert_eq!(ending.code, CloseCode::Invalid);
            assert!(ending.error.unwrap().public_message().is_some());
        }
    }
}
