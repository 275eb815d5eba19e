//! What the hooks are given.

use everturn_core::{Context, Emitter, Registry, Result};
use serde_json::Value;

use crate::{Answers, Message, ModelRequest, ModelResponseChunk, Part, Tool, ToolRequest, metadata};

/// A round that is about to begin: one model call and the tool calls that it asks for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GenerateRound {
    /// The request that the model will get; changes to it stay for later rounds.
    pub request: ModelRequest,
    /// The answers to interrupted tool calls, if this round answers an interrupt.
    pub answers: Option<Answers>,
    /// The number of rounds of this call that ran tools before this one.
    pub index: u32,
    /// The index of the next message to be streamed.
    pub message_index: u32,
    /// Where chunks go. Chunks sent here keep their role and index; without, they are the model's at `message_index`.
    pub emitter: Emitter<ModelResponseChunk>,
    /// The circumstances.
    pub context: Context,
    /// Where other actions are found.
    pub registry: Registry,
}

impl GenerateRound {
    /// Adds a message to the conversation and streams it as a message of its own.
    ///
    /// # Errors
    /// What the receiver of the stream reports.
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

/// A model call that is about to be made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelCall {
    /// What the model will be asked.
    pub request: ModelRequest,
    /// The model's name; another name calls another model.
    pub model: String,
    /// Where the model's chunks go.
    pub emitter: Emitter<ModelResponseChunk>,
    /// The circumstances.
    pub context: Context,
    /// Where other models are found.
    pub registry: Registry,
}

/// A tool call that is about to be made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolCall {
    /// The tool request with its metadata.
    pub part: Part,
    /// The tool that will be run.
    pub tool: Tool,
    /// Where the tool's progress goes.
    pub emitter: Emitter<ModelResponseChunk>,
    /// The circumstances.
    pub context: Context,
    /// Where other actions are found.
    pub registry: Registry,
}

impl ToolCall {
    /// What the model asked for; `None` if a hook has put something else in the request's place.
    pub fn request(&self) -> Option<&ToolRequest> {
        self.part.as_tool_request()
    }

    /// The answer that an interrupted call was restarted with; `None` if this is not a restart.
    pub fn answer(&self) -> Option<&Value> {
        self.part.metadata_entry(metadata::RESUMED)
    }
}
