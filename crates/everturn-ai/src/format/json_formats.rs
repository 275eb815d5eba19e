//! The formats whose output is JSON: `json`, `array` and `jsonl`.

use serde_json::Value;

use super::text::accumulating;
use super::{ChunkParser, Format, FormatConfig, FormatError, FormatHandler, schema};
use crate::{ItemCursor, Message, extract_items, extract_json, parse_json};

/// One JSON object or array. A chunk's output is the part of the value that has been streamed so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonFormat;

impl Format for JsonFormat {
    fn name(&self) -> &'static str {
        "json"
    }

    fn config(&self) -> FormatConfig {
        FormatConfig::new("json")
            .with_content_type("application/json")
            .with_constrained(true)
    }

    fn handler(&self, schema: Option<&Value>) -> Result<Box<dyn FormatHandler>, FormatError> {
        Ok(Box::new(JsonHandler(schema.cloned())))
    }
}

struct JsonHandler(Option<Value>);

impl FormatHandler for JsonHandler {
    fn instructions(&self) -> Option<String> {
        Some(format!(
            "Answer with JSON only. It must match this JSON Schema:\n\n{}\n",
            schema::fenced(self.0.as_ref()?)
        ))
    }

    fn parse_message(&self, message: &Message) -> Result<Option<Value>, FormatError> {
        Ok(extract_json(&message.text()))
    }

    fn chunk_parser(&self) -> Box<dyn ChunkParser> {
        accumulating(|text| Ok(extract_json(text)))
    }
}

/// A JSON array. A chunk's output is the array of the items that were completed with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArrayFormat;

impl Format for ArrayFormat {
    fn name(&self) -> &'static str {
        "array"
    }

    fn config(&self) -> FormatConfig {
        FormatConfig::new("array")
            .with_content_type("application/json")
            .with_constrained(true)
            .with_default_instructions()
    }

    fn handler(&self, schema: Option<&Value>) -> Result<Box<dyn FormatHandler>, FormatError> {
        match schema {
            Some(schema) if !schema::allows_type(schema, "array") => Err(FormatError::new(
                "the format `array` needs a schema of type `array`",
            )),
            _ => Ok(Box::new(ArrayHandler(schema.cloned()))),
        }
    }
}

struct ArrayHandler(Option<Value>);

impl FormatHandler for ArrayHandler {
    fn instructions(&self) -> Option<String> {
        Some(format!(
            "Answer with a JSON array only. It must match this JSON Schema:\n\n{}\n",
            schema::fenced(self.0.as_ref()?)
        ))
    }

    fn parse_message(&self, message: &Message) -> Result<Option<Value>, FormatError> {
        let mut cursor = ItemCursor::default();
        let items = extract_items(&message.text(), &mut cursor);
        if cursor.is_malformed() {
            return Err(broken_array());
        }
        Ok(cursor.has_begun().then_some(Value::Array(items)))
    }

    fn chunk_parser(&self) -> Box<dyn ChunkParser> {
        let mut cursor = ItemCursor::default();
        accumulating(move |text| {
            let items = extract_items(text, &mut cursor);
            if items.is_empty() && cursor.is_malformed() {
                return Err(broken_array());
            }
            Ok(Some(Value::Array(items)))
        })
    }
}

fn broken_array() -> FormatError {
    FormatError::new("the JSON array in the output breaks off in the middle")
}

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
            Ok(Box::new(JsonlHandler { items }))
        } else {
            Err(FormatError::new(
                "the format `jsonl` needs a schema of type `array` with items of type `object`",
            ))
        }
    }
}

struct JsonlHandler {
    items: Option<Value>,
}

impl FormatHandler for JsonlHandler {
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
        accumulating(|unfinished_line| {
            let Some(end) = unfinished_line.rfind('\n') else {
                return Ok(Some(Value::Array(Vec::new())));
            };
            let rest = unfinished_line.split_off(end + 1);
            std::mem::replace(unfinished_line, rest)
                .lines()
                .filter_map(object)
                .collect::<Result<_, _>>()
                .map(|objects| Some(Value::Array(objects)))
        })
    }
}

/// Parses the object on a line; returns `None` for a line with something else.
fn object(line: &str) -> Option<Result<Value, FormatError>> {
    let line = line.trim();
    line.starts_with('{').then(|| {
        parse_json(line).ok_or_else(|| FormatError::new("a line of the output is not a whole JSON object"))
    })
}
