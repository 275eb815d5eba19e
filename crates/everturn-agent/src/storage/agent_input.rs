//! The input of a turn, which a background run stores until its turn comes.

use std::sync::Arc;

use everturn_ai::{Answers, Message};
use everturn_core::Schema;
use everturn_macros::wire;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ClientTool;

/// The input of one turn.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentInput {
    /// The user's messages before [`message`](Self::message), for a client whose user sent several messages
    /// before the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Message>,
    /// The user's message.
    pub message: Option<Message>,
    /// Answers to interrupted tool requests; `resume` on the wire.
    #[serde(rename = "resume")]
    pub answers: Option<Answers>,
    /// Whether the work continues in the background after this input.
    pub detach: Option<bool>,
    /// Tools that the client brings for this turn alone and runs itself. Agents around a prompt offer them to
    /// the model in addition to their own. From clients only where the agent
    /// [allows](crate::ClientPermissions::tools) it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ClientTool>,
    /// Texts of the client for the model, for this turn alone: they follow the agent's system text and are
    /// not stored. From clients only where the agent [allows](crate::ClientPermissions::instructions) it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<String>,
    /// The JSON Schema of the answer to this turn, which agents around a prompt apply; custom functions find
    /// it in [`Turn::input`](crate::Turn::input). From clients only where the agent
    /// [allows](crate::ClientPermissions::output_schema) it.
    pub output_schema: Option<Arc<Value>>,
    /// The custom state that the turn begins with, in place of the session's. From clients only where the
    /// agent [allows](crate::ClientPermissions::custom) it.
    pub custom: Option<Arc<Value>>,
}

impl AgentInput {
    /// Creates an input with a message.
    pub fn message(message: impl Into<Message>) -> Self {
        Self {
            message: Some(message.into()),
            ..Self::default()
        }
    }

    /// Creates an input that answers interrupts.
    pub fn answers(answers: impl Into<Answers>) -> Self {
        Self {
            answers: Some(answers.into()),
            ..Self::default()
        }
    }

    /// Makes the work continue in the background after this input.
    pub fn detached(mut self) -> Self {
        self.detach = Some(true);
        self
    }

    /// Adds tools that the client brings for this turn.
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = ClientTool>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Adds a text of the client that follows the agent's system text in this turn.
    pub fn with_instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions.push(text.into());
        self
    }

    /// Asks for an answer of this JSON Schema in this turn.
    pub fn with_output_schema(mut self, schema: &Schema) -> Self {
        self.output_schema = Some(Arc::new(schema.as_json().clone()));
        self
    }

    /// Returns the user's messages of this input, in order.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.earlier.iter().chain(&self.message)
    }

    /// Returns whether the input has a message or answers, so that a turn can run on it.
    pub fn has_payload(&self) -> bool {
        let answers = |answers: &Answers| !answers.is_empty();
        self.messages().next().is_some() || self.answers.as_ref().is_some_and(answers)
    }

    /// Returns whether the work continues in the background after this input.
    pub fn is_detach(&self) -> bool {
        self.detach == Some(true)
    }
}

everturn_core::conversions! {
    From<&str> for AgentInput: |text| Self::message(text);
    From<String> for AgentInput: |text| Self::message(text);
    From<Message> for AgentInput: |message| Self::message(message);
    From<Answers> for AgentInput: |answers| Self::answers(answers);
}
