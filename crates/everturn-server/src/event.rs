//! The events of a stream and their encoding.

use bytes::Bytes;
use everturn_core::RuntimeError;
use everturn_core::stream_log::JsonText;

/// One event of a stream. A stream has any number of messages and ends with exactly one result or one error.
///
/// On the wire an event is `data: <json>` and a blank line, without names or ids: clients remove the first
/// six characters and parse the rest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A chunk.
    Message(JsonText),
    /// The output.
    Result(JsonText),
    /// The error.
    Error(RuntimeError),
}

impl Event {
    /// Returns whether the event ends the stream.
    pub(crate) fn is_last(&self) -> bool {
        !matches!(self, Self::Message(_))
    }

    /// Encodes the event.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::new();
        self.encode_into(&mut bytes);
        bytes.into()
    }

    /// Appends the encoded event to a buffer.
    pub(crate) fn encode_into(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(b"data: ");
        self.write_into(bytes);
        bytes.extend_from_slice(b"\n\n");
    }

    /// Appends the event's JSON.
    pub(crate) fn to_json(&self) -> String {
        let mut bytes = Vec::new();
        self.write_into(&mut bytes);
        String::from_utf8(bytes).expect("JSON is text")
    }

    fn write_into(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Message(chunk) => write_field("message", chunk.as_str(), bytes),
            Self::Result(output) => write_field("result", output.as_str(), bytes),
            Self::Error(error) => {
                let error = serde_json::to_string(error).expect("an error is plain data");
                write_field("error", &error, bytes);
            }
        }
    }
}

/// Appends an object with one field.
fn write_field(name: &str, json: &str, bytes: &mut Vec<u8>) {
    bytes.reserve(name.len() + json.len() + 5);
    for piece in ["{\"", name, "\":", json, "}"] {
        bytes.extend_from_slice(piece.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::{Error, Exposure};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line_of_data_and_a_blank_one() {
        let error = Error::not_found("no leeks")
            .with_public()
            .to_wire(Exposure::Public);

        assert_eq!(
            Event::Message(JsonText::of(&json!({"count": 0})).unwrap()).encode(),
            "data: {\"message\":{\"count\":0}}\n\n"
        );
        assert_eq!(
            Event::Result(JsonText::of("a\nb").unwrap()).encode(),
            "data: {\"result\":\"a\\nb\"}\n\n"
        );
        assert_eq!(
            Event::Error(error).encode(),
            "data: {\"error\":{\"status\":\"NOT_FOUND\",\"message\":\"no leeks\"}}\n\n"
        );
    }
}
