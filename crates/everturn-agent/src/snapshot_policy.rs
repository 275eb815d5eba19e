//! When a moment of a conversation becomes a snapshot.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use everturn_core::{Result, panic_error};

use crate::{SessionState, SnapshotEvent};

/// A moment at which a snapshot could be taken.
#[derive(Debug)]
#[non_exhaustive]
pub struct SnapshotMoment<'a> {
    /// What happened.
    pub event: SnapshotEvent,
    /// The conversation now.
    pub state: &'a SessionState,
    /// The conversation at the snapshot before; `None` if there is none.
    pub previous: Option<&'a SessionState>,
    /// The number the snapshot would have in its session.
    pub index: u64,
    /// The number of the turn in its line of ancestors; that of the last turn at the end of an invocation.
    pub turn_index: u64,
}

impl SnapshotMoment<'_> {
    /// Whether anything is different from the snapshot before. Costs what was added since, not the conversation's length.
    pub fn is_changed(&self) -> bool {
        self.previous
            .is_none_or(|previous| !self.state.is_unchanged_since(previous))
    }
}

/// Decides which moments become snapshots. Cloning is cheap.
///
/// | policy | becomes a snapshot |
/// |---|---|
/// | [`default`](Self::default) | every successful turn |
/// | [`always`](Self::always) | every moment there is |
/// | [`never`](Self::never) | nothing |
/// | [`on`](Self::on) | these events |
/// | [`on_change`](Self::on_change) | these events, if the conversation is not as the snapshot before left it |
/// | [`when`](Self::when) | what a function says |
///
/// A turn without a snapshot still counts for the turns that follow it in the same invocation; whoever resumes later
/// goes on from the last snapshot that was taken. A background run has its one row whatever the policy says, and no
/// others. With any policy but the default, clients are told of each snapshot: in
/// [`snapshotCreated`](crate::AgentStreamChunk::snapshot_created) chunks and in the output's
/// [`snapshotIds`](crate::AgentOutput::snapshot_ids).
///
/// ```
/// use everturn_agent::{SnapshotEvent, SnapshotPolicy};
///
/// let every_round_of_tools = SnapshotPolicy::on([SnapshotEvent::TurnEnd, SnapshotEvent::ToolIterationEnd]);
/// let every_other_turn = SnapshotPolicy::when(|moment| {
///     moment.event == SnapshotEvent::TurnEnd && moment.turn_index % 2 == 1
/// });
/// # let _ = (every_round_of_tools, every_other_turn);
/// ```
#[derive(Clone)]
pub struct SnapshotPolicy(Rule);

#[derive(Clone)]
enum Rule {
    EveryTurn,
    Always,
    Never,
    On(Arc<[SnapshotEvent]>),
    OnChange(Arc<[SnapshotEvent]>),
    When(Arc<dyn Fn(&SnapshotMoment<'_>) -> bool + Send + Sync>),
}

impl SnapshotPolicy {
    /// Every moment: the ends of turns, of rounds of tools within them, and of invocations.
    pub fn always() -> Self {
        Self(Rule::Always)
    }

    /// No moment. Background runs still have their row.
    pub fn never() -> Self {
        Self(Rule::Never)
    }

    /// Every moment of these kinds.
    pub fn on(events: impl IntoIterator<Item = SnapshotEvent>) -> Self {
        Self(Rule::On(events.into_iter().collect()))
    }

    /// Every moment of these kinds at which the conversation is not as the snapshot before left it.
    pub fn on_change(events: impl IntoIterator<Item = SnapshotEvent>) -> Self {
        Self(Rule::OnChange(events.into_iter().collect()))
    }

    /// The moments that `decide` says. It is asked while the invocation waits, so it should not take long.
    pub fn when(decide: impl Fn(&SnapshotMoment<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Rule::When(Arc::new(decide)))
    }

    /// Whether this is what an agent with a store does unless it is told otherwise.
    pub(crate) fn is_default(&self) -> bool {
        matches!(self.0, Rule::EveryTurn)
    }

    /// Whether a moment of this kind can become a snapshot.
    pub(crate) fn listens_to(&self, event: SnapshotEvent) -> bool {
        match &self.0 {
            Rule::EveryTurn => event == SnapshotEvent::TurnEnd,
            Rule::Always | Rule::When(_) => true,
            Rule::Never => false,
            Rule::On(events) | Rule::OnChange(events) => events.contains(&event),
        }
    }

    /// Whether this moment becomes a snapshot.
    ///
    /// # Errors
    /// `INTERNAL` if the policy panics.
    pub(crate) fn wants(&self, moment: &SnapshotMoment<'_>) -> Result<bool> {
        match &self.0 {
            Rule::OnChange(_) => Ok(self.listens_to(moment.event) && moment.is_changed()),
            Rule::When(decide) => catch_unwind(AssertUnwindSafe(|| decide(moment)))
                .map_err(|payload| panic_error("the snapshot policy", payload.as_ref())),
            _ => Ok(self.listens_to(moment.event)),
        }
    }
}

impl Default for SnapshotPolicy {
    /// Every successful turn: what an agent with a store does unless it is told otherwise.
    fn default() -> Self {
        Self(Rule::EveryTurn)
    }
}

impl fmt::Debug for SnapshotPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnapshotPolicy::")?;
        match &self.0 {
            Rule::EveryTurn => f.write_str("default"),
            Rule::Always => f.write_str("always"),
            Rule::Never => f.write_str("never"),
            Rule::On(events) => write!(f, "on({events:?})"),
            Rule::OnChange(events) => write!(f, "on_change({events:?})"),
            Rule::When(_) => f.write_str("when"),
        }
    }
}
