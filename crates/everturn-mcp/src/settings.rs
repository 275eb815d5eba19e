//! Services that an application offers to the servers it uses.

use std::sync::Arc;

use everturn_ai::Message;
use everturn_core::HandlerResult;
use futures::future::BoxFuture;
use serde_json::Value;

/// A question from a server to the user during a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Elicitation {
    /// The server that asks.
    pub server: String,
    /// The text of the question.
    pub message: String,
    /// The JSON Schema of the answer, for a form.
    pub schema: Option<Value>,
    /// The page on which the user answers, if there is one.
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
    /// The content of the form; `null` for a page that was shown to the user.
    Accept(Value),
    /// The user declines.
    Decline,
    /// The user left without a decision.
    Cancel,
}

/// A generation that a server requests from this application.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sampling {
    /// The server that asks.
    pub server: String,
    /// The system text.
    pub system: Option<String>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The maximum number of tokens of the answer.
    pub max_tokens: u32,
    /// The temperature.
    pub temperature: Option<f32>,
    /// The stop sequences.
    pub stop_sequences: Vec<String>,
    /// The models that the server prefers, best first.
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

/// The result of a generation for a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The name of the model.
    pub model: String,
    /// Its answer.
    pub message: Message,
}

pub(crate) type ElicitationHandler =
    Arc<dyn Fn(Elicitation) -> BoxFuture<'static, HandlerResult<Answer>> + Send + Sync>;

pub(crate) type SamplingHandler =
    Arc<dyn Fn(Sampling) -> BoxFuture<'static, HandlerResult<Sampled>> + Send + Sync>;

/// The services for every server.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) elicitation: Option<ElicitationHandler>,
    pub(crate) sampling: Option<SamplingHandler>,
}

everturn_core::opaque_debug!(Settings);
