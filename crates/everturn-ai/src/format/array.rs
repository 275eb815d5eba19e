//! The `array` format: a JSON array whose items can be used as they arrive.

use serde_json::Value;

use super::{ChunkParser, ChunkText, Format, FormatConfig, FormatError, FormatHandler, schema};
use crate::{ItemCursor, Message, ModelResponseChunk, extract_items};

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
            _ => Ok(Box::new(Handler {
                schema: schema.cloned(),
            })),
        }
    }
}

struct Handler {
    schema: Option<Value>,
}

impl FormatHandler for Handler {
    fn instructions(&self) -> Option<String> {
        let schema = self.schema.as_ref()?;
        Some(format!(
            "Answer with a JSON array only. It must match this JSON Schema:\n\n{}\n",
            schema::fenced(schema)
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
        Box::new(Chunks::default())
    }
}

#[derive(Default)]
struct Chunks {
    text: ChunkText,
    so_far: String,
    cursor: ItemCursor,
}

impl ChunkParser for Chunks {
    fn parse_chunk(&mut self, chunk: &ModelResponseChunk) -> Result<Option<Value>, FormatError> {
        self.so_far.push_str(&self.text.added(chunk));
        let items = extract_items(&self.so_far, &mut self.cursor);
        if items.is_empty() && self.cursor.is_malformed() {
            return Err(broken_array());
        }
        Ok(Some(Value::Array(items)))
    }
}

fn broken_array() -> FormatError {
    FormatError::new("the JSON array in the output breaks off in the middle")
}
