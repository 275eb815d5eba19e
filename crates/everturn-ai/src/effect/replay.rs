//! How an effect may be repeated.

use serde::{Deserialize, Serialize};

/// What a tool says about being called again when a turn is taken up after a crash.
///
/// It makes a difference only where what happens is written down, as agents with a store do. A result that was written
/// down is used again; the question is what to do with a call of which only the beginning is known.
///
/// | | written down | the call was under way when the process died |
/// |---|---|---|
/// | `Pure` | nothing | it is run again, as are calls that had finished |
/// | `Idempotent` | its result | it is run again |
/// | `Keyed` | its result | it is run again under the same [`ToolContext::effect_id`](crate::ToolContext::effect_id) |
/// | `Once` | its beginning and its result | it is not run again: [`Tool::with_reconcile`](crate::Tool::with_reconcile) settles it, or else the turn is interrupted and a person does |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Replay {
    /// It only computes or reads, or changes nothing but the session: it may be run any number of times.
    Pure,
    /// Running it twice with the same input has the effect of running it once.
    Idempotent,
    /// The other side recognises a repetition by a key: the tool hands it its effect id.
    Keyed,
    /// It must not be run twice.
    ///
    /// This is what holds for tools that say nothing: a question too many can be answered, a payment too many cannot be
    /// taken back. It costs one more write per call.
    #[default]
    Once,
}

/// What came of a call whose process died, as found out afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconciliation<O> {
    /// It took effect, and this is what it would have returned.
    Happened(O),
    /// It did not take effect: it is run now.
    NeverHappened,
    /// Nobody can tell: a person is asked.
    Unknown,
}

impl<O> Reconciliation<O> {
    /// The same finding with its output changed.
    ///
    /// # Errors
    /// What `change` fails with.
    pub fn try_map<P, E>(self, change: impl FnOnce(O) -> Result<P, E>) -> Result<Reconciliation<P>, E> {
        Ok(match self {
            Self::Happened(output) => Reconciliation::Happened(change(output)?),
            Self::NeverHappened => Reconciliation::NeverHappened,
            Self::Unknown => Reconciliation::Unknown,
        })
    }
}
