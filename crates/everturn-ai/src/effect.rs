//! Effects: the actions of a generation that must not happen, or be paid for, twice.
//!
//! A model call and a tool call are effects. An [`EffectJournal`] in the context ([`with_journal`]) is called
//! before every effect and with every outcome before it is used. It may already have an outcome, from an
//! attempt that died. The generate loop itself does not depend on sessions or stores.
//!
//! | when | what the loop calls |
//! |---|---|
//! | before a model call | [`asking`](EffectJournal::asking): a recorded reply is used instead of a call |
//! | after a usable reply of a model | [`replied`](EffectJournal::replied), before any tool runs |
//! | before a tool call | [`calling`](EffectJournal::calling): a recorded outcome is used instead of a call |
//! | right before the tool's own code runs | [`started`](EffectJournal::started) |
//! | the tool has answered or interrupted | [`ended`](EffectJournal::ended), before the model receives it |
//! | the tool has failed | [`failed`](EffectJournal::failed) |
//!
//! # Position of the journal
//!
//! The journal is outside all middleware and records the outcomes that the loop uses. So a replay repeats no
//! attempt of a retry, calls no model that a fallback gave up on, and asks no person for a second approval.
//! Only `started` is called from inside, right before the tool's own code, so that a call which middleware
//! blocked does not count as started.
//!
//! A recorded reply is streamed as one chunk, so that a client which missed the first attempt sees the whole
//! text. A recorded tool result streams no progress again. Neither creates a span, because nothing ran.
//!
//! A generation that a tool runs has no journal, because its effects are part of the tool's.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use everturn_core::{Context, Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;

use crate::{Approval, ModelRequest, ModelResponse, MultipartToolResponse, ToolRequest};

/// A model call that is about to be made.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ModelEffect<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The request, before model hooks change it.
    pub request: &'a ModelRequest,
}

/// A tool call that is about to be made.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ToolEffect<'a> {
    /// The reply that requests it; `None` for a call that a client restarts after an interrupt.
    pub asked_by: Option<&'a EffectId>,
    /// The index of the request among those of its message.
    pub position: usize,
    /// The tool request.
    pub request: &'a ToolRequest,
    /// How the tool may be called again.
    pub replay: Replay,
    /// The approval of a call that a client restarts after an interrupt; it is the same for every resumption
    /// of the conversation.
    pub approval: Option<&'a Approval>,
    /// The treatment of an approved call that another resumption has already made.
    pub repeat: Repeat,
}

/// The end of a tool call that did not fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolOutcome {
    /// The tool returned this response.
    Finished(MultipartToolResponse),
    /// The tool interrupted with this data and waits for an answer.
    Interrupted(Value),
}

/// The journal's record of a tool call from an earlier attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolRecord {
    /// No record that prevents the call.
    Nothing,
    /// The call was started and its end is unknown.
    Started,
    /// The call ended with this outcome.
    Ended(ToolOutcome),
    /// Another turn started the call and was interrupted; its end is unknown. The conversation has continued,
    /// so the call is not made even if it has not happened.
    CutShort,
    /// Another resumption of the conversation started this approved call, and its end is unknown. It may
    /// still be in progress.
    StartedElsewhere,
    /// Another resumption of the conversation has made this approved call, and a person decides whether to
    /// repeat it.
    AlreadyMade,
}

/// Records the effects of generations, so that an interrupted turn can be replayed.
///
/// Calls of one message run concurrently, so all methods may be called concurrently; only
/// [`calling`](EffectJournal::calling) is called in the order of the requests. An error of any method but
/// [`failed`](EffectJournal::failed) fails the generation unchanged: an outcome that cannot be recorded is
/// not used.
#[async_trait]
pub trait EffectJournal: Send + Sync + 'static {
    /// Returns the identity of a model call, and its reply if it is known.
    async fn asking(&self, effect: ModelEffect<'_>) -> Result<(EffectId, Option<ModelResponse>)>;

    /// Records a usable reply of a model. Every tool request in it has a reference.
    async fn replied(&self, id: &EffectId, response: &ModelResponse) -> Result<()>;

    /// Returns the identity of a tool call, and its record from an earlier attempt.
    async fn calling(&self, effect: ToolEffect<'_>) -> Result<(EffectId, ToolRecord)>;

    /// Records that the tool's own code is about to run.
    async fn started(&self, id: &EffectId) -> Result<()>;

    /// Records the end of the tool call.
    async fn ended(&self, id: &EffectId, outcome: &ToolOutcome) -> Result<()>;

    /// Records that the tool call failed. `had_no_effect` is `false` if it is unknown whether the call took
    /// effect, for example because the work was cancelled while the tool ran.
    async fn failed(&self, id: &EffectId, error: &Error, had_no_effect: bool);

    /// Returns the context in which the tool runs, with which the journal can follow its work.
    fn enter(&self, id: &EffectId, context: Context) -> Context {
        let _ = id;
        context
    }
}

/// `None` hides an outer journal from the generations inside.
struct Journal(Option<Arc<dyn EffectJournal>>);

/// Returns the context with `journal`, which records the effects of generations that run in it.
pub fn with_journal(context: Context, journal: Arc<dyn EffectJournal>) -> Context {
    context.with_extension(Arc::new(Journal(Some(journal))))
}

/// Returns the context without a journal.
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
            approval: None,
            repeat: Repeat::default(),
        }
    }

    /// Sets the approval with which the call was restarted.
    pub(crate) fn approved(self, approval: Option<&'a Approval>, repeat: Repeat) -> Self {
        Self {
            approval,
            repeat,
            ..self
        }
    }
}

/// The identity of one effect: equal on every attempt at it and different from every other effect's. Cloning
/// is cheap.
///
/// It consists of letters and digits, so that it can be an idempotency key for any service.
#[derive(Clone)]
pub struct EffectId(Arc<LazyLock<String, Box<dyn FnOnce() -> String + Send>>>);

impl EffectId {
    /// Creates a random identity.
    pub fn random() -> Self {
        Self::when_needed(|| Uuid::new_v4().simple().to_string())
    }

    /// Creates an identity whose text is computed on first use, because most model calls have no tools that
    /// need it.
    pub fn when_needed(text: impl FnOnce() -> String + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(text))))
    }

    /// Returns the identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

everturn_core::conversions! {
    From<String> for EffectId: |id| Self::when_needed(move || id);
    From<&str> for EffectId: |id| id.to_owned().into();
}

impl PartialEq for EffectId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.as_str() == other.as_str()
    }
}

impl Eq for EffectId {}

impl Hash for EffectId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Serialize for EffectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EffectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

impl fmt::Display for EffectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Debug for EffectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "EffectId({self})")
    }
}

/// How a tool may be called again when a turn is replayed after a crash.
///
/// It matters only where a journal records effects, as in agents with a store. A recorded result is always
/// used again; the declaration applies to a call that was started but has no recorded end.
///
/// | | recorded | if the call was in progress when the process died |
/// |---|---|---|
/// | `Pure` | nothing | it is run again, like finished calls |
/// | `Idempotent` | its result | it is run again |
/// | `Keyed` | its result | it is run again under the same effect id |
/// | `Once` | its start and its result | it is not run again |
///
/// The effect id is [`ToolContext::effect_id`](crate::ToolContext::effect_id). The outcome of an interrupted
/// `Once` call is determined by [`Tool::with_reconcile`](crate::Tool::with_reconcile); without it the turn is
/// interrupted, and a person determines the outcome.
///
/// A `Once` call that fails is treated like one whose process died, unless its error states that [nothing
/// happened](everturn_core::Error::nothing_happened).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Replay {
    /// The tool only computes or reads, or changes only the session: it may run any number of times.
    Pure,
    /// Running the tool twice with equal input has the same effect as running it once.
    Idempotent,
    /// The service behind the tool detects a repetition by a key; the tool passes on its effect id.
    Keyed,
    /// The tool must not run twice.
    ///
    /// This is the default: an unnecessary question can be answered, a second payment cannot be undone. It
    /// costs one more write per call.
    #[default]
    Once,
}

/// The treatment of an approved call of a [`Replay::Once`] tool that another resumption of the
/// conversation has already made: the same snapshot was resumed twice, or a branch begins at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Repeat {
    /// The recorded outcome is the answer, if the approval is the same; an approval with another decision or
    /// other arguments leads to a new question.
    #[default]
    Recorded,
    /// The question is repeated, with the information that the call was already made.
    Ask,
}

/// The outcome of a started call whose end is unknown, as determined afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconciliation<O> {
    /// The call took effect and would have returned this output.
    Happened(O),
    /// The call did not take effect and no longer can. After a crash it is run now. A call that failed in
    /// this turn is not repeated: its error is its outcome.
    NeverHappened,
    /// The outcome cannot be determined, so a person must decide.
    Unknown,
}

impl<O> Reconciliation<O> {
    /// Converts the output with `change`.
    ///
    /// # Errors
    /// The error of `change`.
    pub fn try_map<P, E>(self, change: impl FnOnce(O) -> Result<P, E>) -> Result<Reconciliation<P>, E> {
        Ok(match self {
            Self::Happened(output) => Reconciliation::Happened(change(output)?),
            Self::NeverHappened => Reconciliation::NeverHappened,
            Self::Unknown => Reconciliation::Unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_when_it_is_asked_for() {
        let unused = EffectId::when_needed(|| unreachable!("nobody asks"));
        let (made, same) = (
            EffectId::when_needed(|| "leek".to_owned()),
            EffectId::from("leek"),
        );

        assert_eq!(unused, unused.clone());
        assert_eq!(made, same);
        assert_eq!(serde_json::to_value(&made).unwrap(), "leek");
        assert_eq!(serde_json::from_value::<EffectId>("leek".into()).unwrap(), same);
    }
}
