//! The arguments of the hooks.

use everturn_core::{Context, Emitter, Registry, Result};
use serde_json::Value;

use crate::{Answers, Message, ModelRequest, ModelResponseChunk, Part, Tool, ToolRequest, metadata};

/// A round before it starts: one model call and the tool calls that it requests.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GenerateRound {
    /// The request for the model; changes to it stay for later rounds.
    pub request: ModelRequest,
    /// The answers to interrupted tool calls, if this round answers an interrupt.
    pub answers: Option<Answers>,
    /// The number of rounds of this call that ran tools before this one.
    pub index: u32,
    /// The index of the next message to be streamed.
    pub message_index: u32,
    /// Receives the chunks. A chunk without a role and an index becomes the model's at `message_index`.
    pub emitter: Emitter<ModelResponseChunk>,
    /// The context of the call.
    pub context: Context,
    /// The registry of the generation.
    pub registry: Registry,
}

impl GenerateRound {
    /// Adds a message to the conversation and streams it as its own message.
    ///
    /// # Errors
    /// The error of the stream's receiver.
    pub async fn inject(&mut self, message: Message) -> Result<()> {
        let chunk = ModelResponseChunk {
            role: Some(message.role()),
            index: Some(self.message_index),
            ..ModelResponseChunk::new(message.content())
        };
        self.emitter.send(chunk).await?;
        self.message_index += 1;
        self.request.messages.push(message);
        Ok(())
    }
}

/// A model call before it is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelCall {
    /// The request for the model.
    pub request: ModelRequest,
    /// The model's name; another name calls another model.
    pub model: String,
    /// Receives the model's chunks.
    pub emitter: Emitter<ModelResponseChunk>,
    /// The context of the call.
    pub context: Context,
    /// The registry of the generation.
    pub registry: Registry,
}

/// A tool call before it is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolCall {
    /// The tool request with its metadata.
    pub part: Part,
    /// The tool to run.
    pub tool: Tool,
    /// Receives the tool's progress.
    pub emitter: Emitter<ModelResponseChunk>,
    /// The context of the call.
    pub context: Context,
    /// The registry of the generation.
    pub registry: Registry,
}

impl ToolCall {
    /// Returns the tool request, or `None` if a hook has replaced the part with another kind.
    pub fn request(&self) -> Option<&ToolRequest> {
        self.part.as_tool_request()
    }

    /// Returns the answer with which an interrupted call was restarted; `None` if this is not a restart.
    pub fn answer(&self) -> Option<&Value> {
        self.part.metadata_entry(metadata::RESUMED)
    }
}
