//! A model without a network, for demonstrations and tests.

mod input;
mod sample;
mod talk;
mod text;
mod tool_call;

use std::time::Duration;

use everturn_ai::{
    ConstrainedSupport, Message, Model, ModelAction, ModelInfo, ModelRequest, ModelResponse,
    ModelResponseChunk, ModelSupports, Part, Role, register_model,
};
use everturn_core::{Context, Emitter, HandlerResult, Registry, Result};

use crate::words;

/// A rule-based model that answers without a network. It has no language understanding, and its answers state
/// this.
///
/// Equal requests have equal answers:
///
/// - The last message asks for a tool by words of its name or description, or a tool is required: a call of
///   that tool. Its input conforms to the tool's schema, with texts and numbers taken from the message.
/// - The last message contains results of tools: the results.
/// - The request has a schema for the output: a value that conforms to it, with sample contents.
/// - A greeting, thanks, or a question about the conversation so far or about the model's abilities: a
///   fitting sentence.
/// - Anything else: the message repeated, with a note that this is no real model.
///
/// Answers are streamed word by word, with an optional [pause](OfflineModel::with_pace).
#[derive(Debug, Clone, Copy, Default)]
pub struct OfflineModel {
    pace: Duration,
}

impl OfflineModel {
    /// Returns a model that streams without pauses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the model pause this long before each word that it streams.
    pub fn with_pace(self, pace: Duration) -> Self {
        Self { pace }
    }

    /// Registers the model under a name.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if a model of that name exists.
    pub fn register(self, registry: &Registry, name: impl Into<String>) -> Result<ModelAction> {
        register_model(registry, name, self)
    }
}

impl Model for OfflineModel {
    fn info(&self) -> ModelInfo {
        let supports = ModelSupports {
            multiturn: Some(true),
            tools: Some(true),
            tool_choice: Some(true),
            system_role: Some(true),
            constrained: Some(ConstrainedSupport::All),
            ..ModelSupports::default()
        };
        ModelInfo {
            label: Some("Offline model".to_owned()),
            supports: Some(supports),
            ..ModelInfo::default()
        }
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let answer = Message::model(answer(&request));
        words::stream(answer.content(), self.pace, &emitter).await?;
        Ok(ModelResponse::new(answer))
    }
}

fn answer(request: &ModelRequest) -> Part {
    let is_from_user = request
        .messages
        .last()
        .is_some_and(|message| message.role() == Role::User);
    if is_from_user && let Some(call) = tool_call::wanted(request) {
        return call.into();
    }
    let text = sample::output(request).unwrap_or_else(|| talk::reply(request));
    Part::text(text)
}
