//! The interface between the generate loop and a journal of its effects.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use everturn_core::{Context, Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;

use super::{Repeat, Replay};
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
