//! A model that repeats the user's message.

use std::time::Duration;

use everturn_ai::{
    Content, Message, Model, ModelAction, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk, Role,
    register_model,
};
use everturn_core::{Context, Emitter, HandlerResult, Registry, Result};

use crate::words;

/// A model that repeats the last user message, part for part. When streamed, it sends text word by word.
///
/// Without a user message it answers with an empty text.
#[derive(Debug, Clone, Copy, Default)]
pub struct EchoModel;

impl EchoModel {
    /// Registers the model under a name.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if a model of that name exists.
    pub fn register(self, registry: &Registry, name: impl Into<String>) -> Result<ModelAction> {
        register_model(registry, name, self)
    }
}

impl Model for EchoModel {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            label: Some("Echo".to_owned()),
            ..ModelInfo::default()
        }
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let last = request
            .messages
            .iter()
            .rev()
            .find(|message| message.role() == Role::User);
        let answer =
            Message::model(last.map_or_else(|| Content::from(""), |message| message.content().into()));
        words::stream(answer.content(), Duration::ZERO, &emitter).await?;
        Ok(ModelResponse::new(answer))
    }
}
