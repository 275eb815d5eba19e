//! Events of a response's stream.

use std::borrow::Cow;

use everturn_core::stream_log::JsonText;
use serde::Serialize;
use serde_json::json;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: Cow<'static, str>,
    pub(crate) number: u64,
    /// The data, with the event's type and number.
    pub(crate) data: JsonText,
}

#[derive(Serialize)]
struct Data<'a, T> {
    #[serde(rename = "type")]
    name: &'a str,
    sequence_number: u64,
    #[serde(flatten)]
    fields: T,
}

impl Event {
    /// Creates an event with its type, its number and these fields.
    pub(crate) fn new(name: &'static str, number: u64, fields: impl Serialize) -> Self {
        let data = Data {
            name,
            sequence_number: number,
            fields,
        };
        Self {
            name: name.into(),
            number,
            data: JsonText::of(&data).expect("an event is plain data"),
        }
    }

    /// Creates the event of a stream that failed, in both forms that clients accept.
    pub(crate) fn error(number: u64, code: &str, message: &str) -> Self {
        let error =
            json!({ "type": "invalid_request_error", "code": code, "message": message, "param": null });
        let fields = json!({ "code": code, "message": message, "param": null, "error": error });
        Self::new("error", number, fields)
    }
}
