//! The `jsonl` format: one JSON object per line.

use serde_json::Value;

use super::{ChunkParser, ChunkText, Format, FormatConfig, FormatError, FormatHandler, schema};
use crate::{Message, ModelResponseChunk, parse_json};

/// JSON objects, one per line. A chunk's output is the array of the objects whose lines ended with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonlFormat;

impl Format for JsonlFormat {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn config(&self) -> FormatConfig {
        FormatConfig::new("jsonl")
            .with_content_type("application/jsonl")
            .with_default_instructions()
    }

    fn handler(&self, schema: Option<&Value>) -> Result<Box<dyn FormatHandler>, FormatError> {
        let items = schema.and_then(schema::items);
        let is_array = schema.is_none_or(|schema| schema::allows_type(schema, "array"));
        let holds_objects = items
            .as_ref()
            .is_none_or(|items| schema::allows_type(items, "object"));
        if is_array && holds_objects {
            Ok(Box::new(Handler { items }))
        } else {
            Err(FormatError::new(
                "the format `jsonl` needs a schema of type `array` with items of type `object`",
            ))
        }
    }
}

struct Handler {
    items: Option<Value>,
}

impl FormatHandler for Handler {
    fn instructions(&self) -> Option<String> {
        let items = self.items.as_ref()?;
        Some(format!(
            "Answer with JSON Lines only: one JSON object per line, each on a single line. \
             Each object must match this JSON Schema:\n\n{}\n",
            schema::fenced(items)
        ))
    }

    fn parse_message(&self, message: &Message) -> Result<Option<Value>, FormatError> {
        let objects = message
            .text()
            .lines()
            .filter_map(object)
            .collect::<Result<Vec<_>, _>>()?;
        Ok((!objects.is_empty()).then_some(Value::Array(objects)))
    }

    fn chunk_parser(&self) -> Box<dyn ChunkParser> {
        Box::new(Chunks::default())
    }
}

#[derive(Default)]
struct Chunks {
    text: ChunkText,
    unfinished_line: String,
}

impl ChunkParser for Chunks {
    fn parse_chunk(&mut self, chunk: &ModelResponseChunk) -> Result<Option<Value>, FormatError> {
        self.unfinished_line.push_str(&self.text.added(chunk));
        let Some(end) = self.unfinished_line.rfind('\n') else {
            return Ok(Some(Value::Array(Vec::new())));
        };
        let rest = self.unfinished_line.split_off(end + 1);
        let finished = std::mem::replace(&mut self.unfinished_line, rest);
        finished
            .lines()
            .filter_map(object)
            .collect::<Result<_, _>>()
            .map(|objects| Some(Value::Array(objects)))
    }
}

/// Parses the object on a line; returns `None` for a line with something else.
fn object(line: &str) -> Option<Result<Value, FormatError>> {
    let line = line.trim();
    line.starts_with('{').then(|| {
        parse_json(line).ok_or_else(|| FormatError::new("a line of the output is not a whole JSON object"))
    })
}
