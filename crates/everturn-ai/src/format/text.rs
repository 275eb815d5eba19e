//! The `text` format: the answer as it is.

use serde_json::Value;

use super::{ChunkParser, ChunkText, Format, FormatConfig, FormatError, FormatHandler};
use crate::{Message, ModelResponseChunk};

/// Plain text. A chunk's output is the text that is new in it.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextFormat;

impl Format for TextFormat {
    fn name(&self) -> &'static str {
        "text"
    }

    fn config(&self) -> FormatConfig {
        FormatConfig::new("text").with_content_type("text/plain")
    }

    fn handler(&self, _schema: Option<&Value>) -> Result<Box<dyn FormatHandler>, FormatError> {
        Ok(Box::new(Handler))
    }
}

struct Handler;

impl FormatHandler for Handler {
    fn instructions(&self) -> Option<String> {
        None
    }

    fn parse_message(&self, message: &Message) -> Result<Option<Value>, FormatError> {
        Ok(Some(Value::String(message.text().into_owned())))
    }

    fn chunk_parser(&self) -> Box<dyn ChunkParser> {
        Box::new(Chunks::default())
    }
}

#[derive(Default)]
struct Chunks {
    text: ChunkText,
}

impl ChunkParser for Chunks {
    fn parse_chunk(&mut self, chunk: &ModelResponseChunk) -> Result<Option<Value>, FormatError> {
        Ok(Some(Value::String(self.text.added(chunk).into_owned())))
    }
}
