//! The arguments of a tool call while they are streamed.

use everturn_ai::{JsonObject, complete_json};
use serde_json::Value;

/// Arguments up to this size are shown with every piece.
const ALWAYS_SHOWN_BYTES: usize = 1024;

/// The JSON text of a tool call's arguments, as far as it has arrived.
///
/// The state of the text is updated incrementally, so each piece costs only its own length. Long arguments
/// are shown when they have grown by a sixteenth.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arguments {
    text: String,
    nesting: Nesting,
    /// The length of the text when it was last shown.
    shown: usize,
}

/// The outcome of a call's arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The input of the tool. A text that is not JSON becomes a string, so that the check of the schema
    /// answers the model.
    Input(Value),
    /// The text ends in the middle: the call was truncated and must not be run.
    Cut,
}

impl Arguments {
    /// Adds a piece of the text.
    pub(crate) fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        piece.bytes().for_each(|byte| self.nesting.take(byte));
    }

    /// Adds what a server sent: a piece of the text, or the value itself.
    pub(crate) fn push_value(&mut self, value: &Value) {
        match value {
            Value::Null => {}
            Value::String(piece) => self.push(piece),
            whole => self.push(&whole.to_string()),
        }
    }

    /// Returns whether nothing has arrived yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns whether the text is a complete object or list.
    pub(crate) fn is_complete(&self) -> bool {
        self.nesting.is_closed
    }

    /// Returns the arguments so far, for a chunk; `None` if a chunk has shown nearly as much. Parsing costs
    /// time in proportion to the text, so a long text must not be parsed for every piece.
    pub(crate) fn show(&mut self) -> Option<Value> {
        let least = match self.shown {
            shown if shown < ALWAYS_SHOWN_BYTES => shown + 1,
            shown => shown + shown / 16,
        };
        if self.text.len() < least {
            return None;
        }
        self.shown = self.text.len();
        Some(complete_json(&self.text).unwrap_or_else(|| Value::Object(JsonObject::new())))
    }

    /// Returns the arguments of a finished call.
    pub(crate) fn outcome(&self) -> Outcome {
        let text = self.text.trim();
        if text.is_empty() {
            return Outcome::Input(Value::Object(JsonObject::new()));
        }
        match serde_json::from_str(text) {
            Ok(value) => Outcome::Input(value),
            Err(error) if error.is_eof() => Outcome::Cut,
            Err(_) => Outcome::Input(Value::String(self.text.clone())),
        }
    }
}

/// The nesting depth of a JSON text.
#[derive(Debug, Clone, Copy, Default)]
struct Nesting {
    depth: usize,
    is_quoted: bool,
    is_escaped: bool,
    /// Whether the outermost object or list has ended.
    is_closed: bool,
}

impl Nesting {
    fn take(&mut self, byte: u8) {
        if self.is_quoted {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.is_quoted = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.is_quoted = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.is_closed |= self.depth == 0;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(text: &str) -> Arguments {
        let mut arguments = Arguments::default();
        arguments.push(text);
        arguments
    }

    #[test]
    fn empty_truncated_and_wrong_arguments_are_distinguished() {
        let outcome = |text| arguments(text).outcome();

        assert_eq!(outcome(""), Outcome::Input(json!({})));
        assert_eq!(outcome(r#"{"a": 1}"#), Outcome::Input(json!({"a": 1})));
        assert_eq!(outcome(r#"{"a": "x"#), Outcome::Cut);
        assert_eq!(outcome("{a: 1}"), Outcome::Input(json!("{a: 1}")));
    }

    #[test]
    fn what_has_come_so_far_is_completed() {
        let mut arguments = Arguments::default();
        assert_eq!(arguments.show(), None);

        arguments.push(r#"{"city": "Par"#);
        assert_eq!(arguments.show(), Some(json!({"city": "Par"})));
        assert_eq!(arguments.show(), None);
    }

    #[test]
    fn brackets_in_texts_close_nothing() {
        for open in ["", "{", r#"{"a": "}"#, r#"{"a": "\"}"#, r#"{"a": {}"#] {
            assert!(!arguments(open).is_complete(), "{open}");
        }
        for whole in ["{}", r#"{"a": "}"}"#, r#"{"a": ["\\", {}]}"#] {
            assert!(arguments(whole).is_complete(), "{whole}");
        }
    }

    /// Counts bytes instead of time: the shown bytes are the parsed bytes.
    #[test]
    fn a_long_text_is_read_a_bounded_number_of_times() {
        let mut arguments = arguments(r#"{"page": ""#);
        let (mut read, mut shown) = (0, 0);
        for _ in 0..100_000 {
            arguments.push("word ");
            if arguments.show().is_some() {
                read += arguments.text.len();
                shown += 1;
            }
        }

        assert!(read < 20 * arguments.text.len(), "{read}");
        assert!(shown > 250, "{shown}");
    }
}
