//! The events of a stream and how they are written.

use bytes::Bytes;
use everturn_core::RuntimeError;
use serde::Serialize;
use serde_json::Value;

/// One event of a stream. A stream is any number of messages and then exactly one result or one error.
///
/// On the wire it is `data: <json>` and a blank line, without names or ids: clients cut the first six characters and
/// parse the rest.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    /// A chunk.
    Message(Value),
    /// The output.
    Result(Value),
    /// What it failed with instead.
    Error(RuntimeError),
}

impl Event {
    /// Whether nothing comes after it.
    pub(crate) fn is_last(&self) -> bool {
        !matches!(self, Self::Message(_))
    }

    /// The event as it is sent.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = b"data: ".to_vec();
        serde_json::to_writer(&mut bytes, self).expect("an event is plain data");
        bytes.extend_from_slice(b"\n\n");
        bytes.into()
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
            Event::Message(json!({"count": 0})).encode(),
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
