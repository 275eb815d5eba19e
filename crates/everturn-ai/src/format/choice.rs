//! The `enum` format: one of a list of values.

use serde_json::Value;

use super::text::accumulating;
use super::{ChunkParser, Format, FormatConfig, FormatError, FormatHandler, schema};
use crate::Message;

/// One of the values that the schema lists. A chunk's output is the value once it is known to be one of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnumFormat;

impl Format for EnumFormat {
    fn name(&self) -> &'static str {
        "enum"
    }

    fn config(&self) -> FormatConfig {
        FormatConfig::new("enum")
            .with_content_type("text/enum")
            .with_constrained(true)
            .with_default_instructions()
    }

    fn handler(&self, schema: Option<&Value>) -> Result<Box<dyn FormatHandler>, FormatError> {
        let choices = schema.and_then(schema::choices);
        match schema {
            Some(schema) if choices.is_none() && !schema::allows_type(schema, "string") => Err(
                FormatError::new("the format `enum` needs a schema that lists values, or of type `string`"),
            ),
            _ => Ok(Box::new(Handler {
                choices: Choices(choices),
            })),
        }
    }
}

/// The values, if the schema lists any.
#[derive(Clone)]
struct Choices(Option<Vec<Value>>);

impl Choices {
    /// Returns the value in an answer; if the schema lists none, any text is a value.
    fn pick(&self, answer: &str) -> Option<Value> {
        match &self.0 {
            None => Some(Value::String(answer.to_owned())),
            Some(values) => values
                .iter()
                .find(|value| unquoted(&shown(value)) == answer)
                .cloned(),
        }
    }
}

/// Returns a value in the form that the instructions show.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Removes quotes, because models often quote plain values.
fn unquoted(text: &str) -> String {
    text.replace(['\'', '"'], "").trim().to_owned()
}

struct Handler {
    choices: Choices,
}

impl FormatHandler for Handler {
    fn instructions(&self) -> Option<String> {
        let values: Vec<_> = self.choices.0.as_ref()?.iter().map(shown).collect();
        Some(format!(
            "Answer with one of these values only, without quotes:\n\n{}\n",
            values.join("\n")
        ))
    }

    fn parse_message(&self, message: &Message) -> Result<Option<Value>, FormatError> {
        let answer = unquoted(&message.text());
        if answer.is_empty() {
            return Ok(None);
        }
        let value = self.choices.pick(&answer);
        value
            .map(Some)
            .ok_or_else(|| FormatError::new("the output is none of the listed values"))
    }

    fn chunk_parser(&self) -> Box<dyn ChunkParser> {
        let choices = self.choices.clone();
        accumulating(move |text| {
            let answer = unquoted(text);
            Ok((!answer.is_empty()).then(|| choices.pick(&answer)).flatten())
        })
    }
}
