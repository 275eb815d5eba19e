//! What an application offers to the servers it uses.

use std::fmt;
use std::sync::Arc;

use everturn_ai::Message;
use everturn_core::HandlerResult;
use futures::future::BoxFuture;
use serde_json::Value;

/// A question that a server puts to the user in the middle of a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Elicitation {
    /// The server that asks.
    pub server: String,
    /// What it asks, for a person.
    pub message: String,
    /// The JSON Schema of the answer, for a form.
    pub schema: Option<Value>,
    /// The page on which the user answers instead of here.
    pub url: Option<String>,
}

impl Elicitation {
    pub(crate) fn new(server: &str, message: String) -> Self {
        Self {
            server: server.to_owned(),
            message,
            schema: None,
            url: None,
        }
    }
}

/// The answer to an [`Elicitation`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// What the user filled in; `null` for a page that the user has been shown.
    Accept(Value),
    /// The user does not want to say.
    Decline,
    /// The user left without a decision.
    Cancel,
}

/// A generation that a server asks this application to pay for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sampling {
    /// The server that asks.
    pub server: String,
    /// The system text.
    pub system: Option<String>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// How many tokens the answer may have.
    pub max_tokens: u32,
    /// How adventurous the answer may be.
    pub temperature: Option<f32>,
    /// Texts at which the answer ends.
    pub stop_sequences: Vec<String>,
    /// The models that the server would like, best first.
    pub models: Vec<String>,
}

impl Sampling {
    pub(crate) fn new(server: &str, max_tokens: u32) -> Self {
        Self {
            server: server.to_owned(),
            system: None,
            messages: Vec::new(),
            max_tokens,
            temperature: None,
            stop_sequences: Vec::new(),
            models: Vec::new(),
        }
    }
}

/// What a generation for a server came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The model that was asked.
    pub model: String,
    /// Its answer.
    pub message: Message,
}

pub(crate) type ElicitationHandler =
    Arc<dyn Fn(Elicitation) -> BoxFuture<'static, HandlerResult<Answer>> + Send + Sync>;

pub(crate) type SamplingHandler =
    Arc<dyn Fn(Sampling) -> BoxFuture<'static, HandlerResult<Sampled>> + Send + Sync>;

/// What is offered to every server.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) elicitation: Option<ElicitationHandler>,
    pub(crate) sampling: Option<SamplingHandler>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("elicitation", &self.elicitation.is_some())
            .field("sampling", &self.sampling.is_some())
            .finish()
    }
}
