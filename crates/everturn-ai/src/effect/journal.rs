//! Standing beside the generate loop.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{Context, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::Replay;
use crate::{ModelRequest, ModelResponse, MultipartToolResponse, ToolRequest};

/// A model call that is about to be made.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ModelEffect<'a> {
    /// The model's name.
    pub model: &'a str,
    /// What it will be asked, before model hooks change it.
    pub request: &'a ModelRequest,
}

/// A tool call that is about to be made.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ToolEffect<'a> {
    /// The reply that asks for it; `None` for a call that a client restarts after an interrupt.
    pub asked_by: Option<&'a EffectId>,
    /// The number of the request among those of its message.
    pub position: usize,
    /// What is asked for.
    pub request: &'a ToolRequest,
    /// What the tool says about being called again.
    pub replay: Replay,
}

/// How a tool call ended, if it did not fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolOutcome {
    /// It returned this.
    Finished(MultipartToolResponse),
    /// It waits for an answer to this.
    Interrupted(Value),
}

/// What a journal knows of a tool call from an earlier attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolRecord {
    /// Nothing that stands in the way of calling it.
    Nothing,
    /// It began, and nobody knows how it ended.
    Started,
    /// It ended, and this is how.
    Ended(ToolOutcome),
}

/// Writes down what generations do, so that they can be taken up again.
///
/// Calls of one message run at the same time, so all methods may be called concurrently; only
/// [`calling`](EffectJournal::calling) is called in the order of the requests. An error of any method but
/// [`failed`](EffectJournal::failed) fails the generation as it is: what cannot be written down is not used.
#[async_trait]
pub trait EffectJournal: Send + Sync + 'static {
    /// The identity of a model call, and its reply if that is known.
    async fn asking(&self, effect: ModelEffect<'_>) -> Result<(EffectId, Option<ModelResponse>)>;

    /// A model replied, and the reply can be used. Every tool request in it has a reference.
    async fn replied(&self, id: &EffectId, response: &ModelResponse) -> Result<()>;

    /// The identity of a tool call, and what is known of it.
    async fn calling(&self, effect: ToolEffect<'_>) -> Result<(EffectId, ToolRecord)>;

    /// The tool's own code is about to run.
    async fn started(&self, id: &EffectId) -> Result<()>;

    /// The tool call ended.
    async fn ended(&self, id: &EffectId, outcome: &ToolOutcome) -> Result<()>;

    /// The tool call failed. `by_itself` says that the tool returned the error, as opposed to being cut short, panicking
    /// or returning what its schema forbids, after which nobody knows whether it took effect.
    async fn failed(&self, id: &EffectId, error: &Error, by_itself: bool);

    /// The context in which the tool runs; a chance to follow what it does.
    fn enter(&self, id: &EffectId, context: Context) -> Context {
        let _ = id;
        context
    }
}

/// `None` where a journal further out does not reach.
struct Journal(Option<Arc<dyn EffectJournal>>);

/// The same context, in which `journal` writes down what generations do.
pub fn with_journal(context: Context, journal: Arc<dyn EffectJournal>) -> Context {
    context.with_extension(Arc::new(Journal(Some(journal))))
}

/// The same context, in which nothing is written down.
pub fn without_journal(context: Context) -> Context {
    match context.extension::<Journal>() {
        Some(_) => context.with_extension(Arc::new(Journal(None))),
        None => context,
    }
}

pub(crate) fn journal_of(context: &Context) -> Option<Arc<dyn EffectJournal>> {
    context.extension::<Journal>()?.0.clone()
}

impl<'a> ModelEffect<'a> {
    pub(crate) fn new(model: &'a str, request: &'a ModelRequest) -> Self {
        Self { model, request }
    }
}

impl<'a> ToolEffect<'a> {
    pub(crate) fn new(
        asked_by: Option<&'a EffectId>,
        position: usize,
        request: &'a ToolRequest,
        replay: Replay,
    ) -> Self {
        Self {
            asked_by,
            position,
            request,
            replay,
        }
    }
}

/// The identity of one effect: the same on every attempt at it, and no other effect's. Cloning is cheap.
///
/// It is made of letters and digits, fit for the idempotency key of any service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectId(Arc<str>);

impl EffectId {
    /// An identity that no effect has had.
    pub fn fresh() -> Self {
        Self(Uuid::new_v4().simple().to_string().into())
    }

    /// The identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for EffectId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<&str> for EffectId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for EffectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for EffectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "EffectId({})", self.0)
    }
}
