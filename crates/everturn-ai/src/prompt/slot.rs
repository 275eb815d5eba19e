//! The slots of a prompt that hold text: literal, templated or computed.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use everturn_core::{Context, HandlerResult, Registry};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::{Content, Message, Messages, Part};

/// The input of a computed slot's function.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PromptScope {
    /// The prompt's input, with defaults filled in.
    pub input: Value,
    /// The conversation so far.
    pub conversation: Messages,
    /// The context of the call.
    pub context: Context,
    /// The registry of the prompt.
    pub registry: Registry,
}

type Compute<T> = Arc<dyn Fn(PromptScope) -> BoxFuture<'static, HandlerResult<T>> + Send + Sync>;

/// The source of a system text or a user prompt.
#[derive(Clone)]
pub struct ContentSlot(pub(super) ContentSource);

#[derive(Clone)]
pub(super) enum ContentSource {
    Template(String),
    Parts(Content),
    Computed(Compute<Content>),
}

impl ContentSlot {
    /// Creates content that a function computes for each rendering.
    pub fn computed<F, Fut>(function: F) -> Self
    where
        F: Fn(PromptScope) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<Content>> + Send + 'static,
    {
        Self(ContentSource::Computed(Arc::new(move |scope| {
            Box::pin(function(scope))
        })))
    }
}

everturn_core::conversions! {
    /// Converts a string into a template.
    From<&str> for ContentSlot: |template| Self(ContentSource::Template(template.to_owned()));
    /// Converts a string into a template.
    From<String> for ContentSlot: |template| Self(ContentSource::Template(template));
    /// Takes parts unchanged.
    From<Vec<Part>> for ContentSlot: |parts| Self(ContentSource::Parts(parts.into()));
    /// Takes a part unchanged.
    From<Part> for ContentSlot: |part| Self(ContentSource::Parts(part.into()));
}

/// The source of a prompt's messages.
#[derive(Clone)]
pub struct MessagesSlot(pub(super) MessagesSource);

#[derive(Clone)]
pub(super) enum MessagesSource {
    Template(String),
    Fixed(Messages),
    Computed(Compute<Messages>),
}

impl MessagesSlot {
    /// Creates messages that a function computes for each rendering. The function gets the conversation so
    /// far; messages that it leaves out are not sent.
    pub fn computed<F, Fut>(function: F) -> Self
    where
        F: Fn(PromptScope) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<Messages>> + Send + 'static,
    {
        Self(MessagesSource::Computed(Arc::new(move |scope| {
            Box::pin(function(scope))
        })))
    }
}

everturn_core::conversions! {
    /// Converts a string into a template.
    From<&str> for MessagesSlot: |template| Self(MessagesSource::Template(template.to_owned()));
    /// Converts a string into a template.
    From<String> for MessagesSlot: |template| Self(MessagesSource::Template(template));
    /// Takes messages unchanged; the conversation is left out.
    From<Vec<Message>> for MessagesSlot: |messages| Self(MessagesSource::Fixed(messages.into()));
}

impl fmt::Debug for ContentSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ContentSource::Template(template) => template.fmt(f),
            ContentSource::Parts(parts) => parts.fmt(f),
            ContentSource::Computed(_) => f.write_str("ContentSlot(computed)"),
        }
    }
}

impl fmt::Debug for MessagesSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            MessagesSource::Template(template) => template.fmt(f),
            MessagesSource::Fixed(messages) => messages.fmt(f),
            MessagesSource::Computed(_) => f.write_str("MessagesSlot(computed)"),
        }
    }
}
