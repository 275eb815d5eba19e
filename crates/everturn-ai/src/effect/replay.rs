//! The ways in which a tool call may be repeated.

use serde::{Deserialize, Serialize};

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
