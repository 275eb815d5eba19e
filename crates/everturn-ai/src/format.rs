//! Output formats: how structured output is requested from a model and how its response is parsed.
//!
//! A [`Format`] has a name. For each generation it creates a [`FormatHandler`] for the schema, and for each
//! streamed message that handler creates a [`ChunkParser`]. The formats `text`, `json`, `array`, `jsonl` and
//! `enum` are built in; others implement the same traits.

mod choice;
mod instructions;
mod json_formats;
mod schema;
mod text;

use std::sync::Arc;
use std::{error, fmt};

use serde_json::Value;

pub use self::{
    choice::EnumFormat,
    instructions::{inject_instructions, resolve_instructions},
    json_formats::{ArrayFormat, JsonFormat, JsonlFormat},
    text::{ChunkText, TextFormat},
};
use crate::{GenerateActionOutputConfig, Message, ModelResponseChunk, OutputConfig};

/// A named way to request output and parse it.
pub trait Format: Send + Sync {
    /// Returns the name of the format in requests.
    fn name(&self) -> &str;

    /// Returns the format's defaults for a request; the caller's settings override them.
    fn config(&self) -> FormatConfig;

    /// Returns a handler for output of this schema.
    ///
    /// # Errors
    ///
    /// If the format cannot produce output of that schema. This is the caller's mistake, not the model's.
    fn handler(&self, schema: Option<&Value>) -> Result<Box<dyn FormatHandler>, FormatError>;
}

/// Reads the output of one generation.
pub trait FormatHandler: Send + Sync {
    /// Returns the instructions for the model, or `None` if the format needs none.
    fn instructions(&self) -> Option<String>;

    /// Parses the output in a whole message; returns `None` if the message holds none.
    ///
    /// # Errors
    ///
    /// If the message holds something that is not output of this format.
    fn parse_message(&self, message: &Message) -> Result<Option<Value>, FormatError>;

    /// Returns a parser for the chunks of one streamed message.
    fn chunk_parser(&self) -> Box<dyn ChunkParser>;
}

/// Reads the output of one streamed message, chunk by chunk.
pub trait ChunkParser: Send {
    /// Parses a chunk and returns the known, or new, part of the output; `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// If the streamed text is not output of the format.
    fn parse_chunk(&mut self, chunk: &ModelResponseChunk) -> Result<Option<Value>, FormatError>;
}

/// The defaults that a format sets in a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormatConfig {
    /// The format's name for providers.
    pub format: Option<String>,
    /// The MIME type of the output.
    pub content_type: Option<String>,
    /// Whether the provider should enforce the schema.
    pub constrained: Option<bool>,
    /// Whether the prompt describes the format even if the caller does not request it.
    pub default_instructions: bool,
}

impl FormatConfig {
    /// Creates a configuration with the format's name for providers and nothing else.
    pub fn new(format: impl Into<String>) -> Self {
        Self {
            format: Some(format.into()),
            ..Self::default()
        }
    }

    everturn_core::setters! {
        /// Sets the MIME type of the output.
        pub fn with_content_type(mut self, content_type: impl Into<String>) {
            self.content_type = Some(content_type.into());
        }

        /// Sets whether the provider should enforce the schema.
        pub fn with_constrained(mut self, constrained: bool) { self.constrained = Some(constrained) }

        /// Always describes the format in the prompt.
        pub fn with_default_instructions(mut self) { self.default_instructions = true }
    }

    /// Returns the output configuration of a model request: the caller's settings over the format's defaults.
    pub fn resolve(&self, caller: &GenerateActionOutputConfig) -> OutputConfig {
        OutputConfig {
            format: caller.format.clone().or_else(|| self.format.clone()),
            schema: caller.json_schema.clone(),
            constrained: caller.constrained.or(self.constrained),
            content_type: caller.content_type.clone().or_else(|| self.content_type.clone()),
        }
    }
}

/// Returns the built-in formats.
pub fn builtin_formats() -> [Arc<dyn Format>; 5] {
    [
        Arc::new(TextFormat),
        Arc::new(JsonFormat),
        Arc::new(ArrayFormat),
        Arc::new(JsonlFormat),
        Arc::new(EnumFormat),
    ]
}

/// The reason why output, or a schema, does not fit a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError(String);

impl FormatError {
    /// Creates an error with this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl error::Error for FormatError {}
