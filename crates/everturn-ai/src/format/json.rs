//! The `json` format: one JSON value.

use serde_json::Value;

use super::{ChunkParser, ChunkText, Format, FormatConfig, FormatError, FormatHandler, schema};
use crate::{Message, ModelResponseChunk, extract_json};

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
        Ok(Box::new(Handler {
            schema: schema.cloned(),
        }))
    }
}

struct Handler {
    schema: Option<Value>,
}

impl FormatHandler for Handler {
    fn instructions(&self) -> Option<String> {
        let schema = self.schema.as_ref()?;
        Some(format!(
            "Answer with JSON only. It must match this JSON Schema:\n\n{}\n",
            schema::fenced(schema)
        ))
    }

    fn parse_message(&self, message: &Message) -> Result<Option<Value>, FormatError> {
        Ok(extract_json(&message.text()))
    }

    fn chunk_parser(&self) -> Box<dyn ChunkParser> {
        Box::new(Chunks::default())
    }
}

#[derive(Default)]
struct Chunks {
    text: ChunkText,
    so_far: String,
}

impl ChunkParser for Chunks {
    fn parse_chunk(&mut self, chunk: &ModelResponseChunk) -> Result<Option<Value>, FormatError> {
        self.so_far.push_str(&self.text.added(chunk));
        Ok(extract_json(&self.so_far))
    }
}
