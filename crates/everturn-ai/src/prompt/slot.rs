//! The places of a prompt that are filled with text: written out, templated or computed.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use everturn_core::{Context, HandlerResult, Registry};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::{Content, Message, Messages, Part};

/// What a computed slot can look at.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PromptScope {
    /// The input, defaults filled in.
    pub input: Value,
    /// The conversation so far.
    pub conversation: Messages,
    /// The circumstances.
    pub context: Context,
    /// Where names are looked up.
    pub registry: Registry,
}

type Compute<T> = Arc<dyn Fn(PromptScope) -> BoxFuture<'static, HandlerResult<T>> + Send + Sync>;

/// What a system text or a user prompt is made from.
#[derive(Clone)]
pub struct ContentSlot(pub(super) ContentSource);

#[derive(Clone)]
pub(super) enum ContentSource {
    Template(String),
    Parts(Content),
    Computed(Compute<Content>),
}

impl ContentSlot {
    /// Content that a function makes for each rendering.
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

/// A string is a template.
impl From<&str> for ContentSlot {
    fn from(template: &str) -> Self {
        Self(ContentSource::Template(template.to_owned()))
    }
}

/// A string is a template.
impl From<String> for ContentSlot {
    fn from(template: String) -> Self {
        Self(ContentSource::Template(template))
    }
}

/// Parts are taken as they are.
impl From<Vec<Part>> for ContentSlot {
    fn from(parts: Vec<Part>) -> Self {
        Self(ContentSource::Parts(parts.into()))
    }
}

/// A part is taken as it is.
impl From<Part> for ContentSlot {
    fn from(part: Part) -> Self {
        Self(ContentSource::Parts(part.into()))
    }
}

/// What the messages of a prompt are made from.
#[derive(Clone)]
pub struct MessagesSlot(pub(super) MessagesSource);

#[derive(Clone)]
pub(super) enum MessagesSource {
    Template(String),
    Fixed(Messages),
    Computed(Compute<Messages>),
}

impl MessagesSlot {
    /// Messages that a function makes for each rendering. It is given the conversation so far, and decides what
    /// becomes of it: what it leaves out is not sent.
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

/// A string is a template.
impl From<&str> for MessagesSlot {
    fn from(template: &str) -> Self {
        Self(MessagesSource::Template(template.to_owned()))
    }
}

/// A string is a template.
impl From<String> for MessagesSlot {
    fn from(template: String) -> Self {
        Self(MessagesSource::Template(template))
    }
}

/// Messages are taken as they are; the conversation is left out.
impl From<Vec<Message>> for MessagesSlot {
    fn from(messages: Vec<Message>) -> Self {
        Self(MessagesSource::Fixed(messages.into()))
    }
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
