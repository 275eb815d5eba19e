//! A system prompt for models that know no system role.

use async_trait::async_trait;
use everturn_core::HandlerResult;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Middleware, ModelCall, ModelResponse, NextModel, SystemPromptWording, simulate_system_prompt_with,
};

/// Turns the first system message into a user message and a model message that acknowledges it.
///
/// Models that declare to know no system role get this anyway; the middleware is for those that only pretend to.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SimulateSystemPrompt {
    /// What the user message with the instructions begins with.
    preface: Option<String>,
    /// What the model is made to answer.
    acknowledgement: Option<String>,
}

impl SimulateSystemPrompt {
    /// What the user message with the instructions begins with.
    pub fn preface(self, preface: impl Into<String>) -> Self {
        Self {
            preface: Some(preface.into()),
            ..self
        }
    }

    /// What the model is made to answer.
    pub fn acknowledgement(self, acknowledgement: impl Into<String>) -> Self {
        Self {
            acknowledgement: Some(acknowledgement.into()),
            ..self
        }
    }

    fn wording(&self) -> SystemPromptWording {
        let usual = SystemPromptWording::default();
        SystemPromptWording {
            preface: self.preface.clone().unwrap_or(usual.preface),
            acknowledgement: self.acknowledgement.clone().unwrap_or(usual.acknowledgement),
        }
    }
}

#[async_trait]
impl Middleware for SimulateSystemPrompt {
    async fn model(&self, mut call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        call.request = simulate_system_prompt_with(call.request, &self.wording());
        Ok(next.run(call).await?)
    }
}
