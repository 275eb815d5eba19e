//! The events of a stream and their encoding.

use bytes::Bytes;
use everturn_core::RuntimeError;
use everturn_core::stream_log::JsonText;
use serde::Serialize;
use serde_json::Value;

/// One event of a stream. A stream has any number of messages and ends with exactly one result or one error.
///
/// On the wire an event is `data: <json>` and a blank line, without names or ids: clients remove the first six characters
/// and parse the rest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A chunk.
    Message(JsonText),
    /// The output.
    Result(Value),
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
            Self::Message(chunk) => {
                bytes.extend_from_slice(b"{\"message\":");
                bytes.extend_from_slice(chunk.as_str().as_bytes());
            }
            Self::Result(output) => write_field("result", output, bytes),
            Self::Error(error) => write_field("error", error, bytes),
        }
        bytes.push(b'}');
    }
}

/// Appends the beginning of an object with one field.
fn write_field(name: &str, value: &impl Serialize, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(b"{\"");
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(b"\":");
    serde_json::to_writer(bytes, value).expect("an event is plain data");
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
            Event::Result(json!("a\nb")).encode(),
            "data: {\"result\":\"a\\nb\"}\n\n"
        );
        assert_eq!(
            Event::Error(error).encode(),
            "data: {\"error\":{\"status\":\"NOT_FOUND\",\"message\":\"no leeks\"}}\n\n"
        );
    }
}
