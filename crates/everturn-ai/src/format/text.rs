//! Plain text: the format that returns the answer unchanged, and the text of a message while it is streamed.

use std::borrow::Cow;

use serde_json::Value;

use super::{ChunkParser, Format, FormatConfig, FormatError, FormatHandler};
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
        accumulating(|text| Ok(Some(Value::String(std::mem::take(text)))))
    }
}

/// Creates a parser that calls a function with each chunk's new text appended to its text.
pub(super) fn accumulating<F>(parse: F) -> Box<dyn ChunkParser>
where
    F: FnMut(&mut String) -> Result<Option<Value>, FormatError> + Send + 'static,
{
    Box::new(Accumulating {
        added: ChunkText::default(),
        text: String::new(),
        parse,
    })
}

struct Accumulating<F> {
    added: ChunkText,
    text: String,
    parse: F,
}

impl<F> ChunkParser for Accumulating<F>
where
    F: FnMut(&mut String) -> Result<Option<Value>, FormatError> + Send,
{
    fn parse_chunk(&mut self, chunk: &ModelResponseChunk) -> Result<Option<Value>, FormatError> {
        self.text.push_str(&self.added.added(chunk));
        (self.parse)(&mut self.text)
    }
}

/// Finds the new text in each chunk, even if chunks repeat everything before them.
#[derive(Debug, Clone, Default)]
pub struct ChunkText {
    seen: usize,
}

impl ChunkText {
    /// Returns the text of `chunk` that no earlier chunk had.
    pub fn added<'a>(&mut self, chunk: &'a ModelResponseChunk) -> Cow<'a, str> {
        let text = chunk.text();
        if !chunk.aggregated {
            self.seen += text.len();
            return text;
        }
        let added = match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.get(self.seen..).unwrap_or_default()),
            Cow::Owned(text) => Cow::Owned(text.get(self.seen..).unwrap_or_default().to_owned()),
        };
        self.seen += added.len();
        added
    }
}
