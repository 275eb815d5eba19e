//! The arguments of a tool call while they are streamed.

use everturn_ai::{JsonObject, complete_json};
use serde_json::Value;

/// The JSON text of a tool call's arguments, as far as it has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arguments(String);

/// What a call's arguments turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The input of the tool. A text that is not JSON is its own value, so that the check of the schema answers the model.
    Input(Value),
    /// The text ends in the middle: the call was cut and must not be run.
    Cut,
}

impl Arguments {
    /// Adds a piece of the text.
    pub(crate) fn push(&mut self, piece: &str) {
        self.0.push_str(piece);
    }

    /// Adds what a server sent: a piece of the text, or the value itself.
    pub(crate) fn push_value(&mut self, value: &Value) {
        match value {
            Value::Null => {}
            Value::String(piece) => self.push(piece),
            whole => self.push(&whole.to_string()),
        }
    }

    /// Whether the text is a whole JSON value.
    pub(crate) fn is_complete(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.0).is_ok()
    }

    /// The arguments as far as they have come, for a chunk that says so.
    pub(crate) fn so_far(&self) -> Value {
        complete_json(&self.0).unwrap_or_else(|| Value::Object(JsonObject::new()))
    }

    /// The arguments once the call is over.
    pub(crate) fn outcome(&self) -> Outcome {
        let text = self.0.trim();
        if text.is_empty() {
            return Outcome::Input(Value::Object(JsonObject::new()));
        }
        match serde_json::from_str(text) {
            Ok(value) => Outcome::Input(value),
            Err(error) if error.is_eof() => Outcome::Cut,
            Err(_) => Outcome::Input(Value::String(self.0.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(text: &str) -> Outcome {
        let mut arguments = Arguments::default();
        arguments.push(text);
        arguments.outcome()
    }

    #[test]
    fn empty_cut_and_wrong_arguments_are_told_apart() {
        assert_eq!(outcome(""), Outcome::Input(json!({})));
        assert_eq!(outcome(r#"{"a": 1}"#), Outcome::Input(json!({"a": 1})));
        assert_eq!(outcome(r#"{"a": "x"#), Outcome::Cut);
        assert_eq!(outcome("{a: 1}"), Outcome::Input(json!("{a: 1}")));
    }

    #[test]
    fn what_has_come_so_far_is_completed() {
        let mut arguments = Arguments::default();
        assert_eq!(arguments.so_far(), json!({}));

        arguments.push(r#"{"city": "Par"#);
        assert_eq!(arguments.so_far(), json!({"city": "Par"}));
    }
}
