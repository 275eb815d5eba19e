//! Observers of turns that end, for metrics.

use std::sync::Arc;
use std::time::Duration;

use everturn_ai::UsageTotal;
use everturn_core::{Registry, Status};

use crate::weak_list::WeakList;
use crate::{AgentFinishReason, UnfinishedCall};

/// A turn that has ended, in the foreground or in the background.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EndedTurn<'a> {
    /// The agent whose turn it was.
    pub agent: &'a str,
    /// How it ended; `unknown` if the agent gave none.
    pub finish_reason: AgentFinishReason,
    /// The status of the error with which it failed.
    pub failure: Option<Status>,
    /// Whether a limit ended it.
    pub limit_reached: bool,
    /// The number of tool calls whose outcome is unknown and waits to be settled.
    pub unknown_outcomes: usize,
    /// The usage of its models and tools, without other agents that it called.
    pub usage: UsageTotal,
    /// How long it took.
    pub took: Duration,
}

/// An observer of turns that end; see [`observe_turns`].
pub trait TurnObserver: Send + Sync + 'static {
    /// Receives a turn that has ended. It is called by the task that ran the turn and must not block.
    fn turn_ended(&self, turn: &EndedTurn<'_>);

    /// Receives a call that a poll for lost runs found: its turn died, and its outcome is unknown.
    fn call_found(&self, call: &UnfinishedCall) {
        let _ = call;
    }
}

/// Notifies `observer` of the turns of all agents of the registry, including those defined later, while
/// another owner keeps the observer alive.
pub fn observe_turns(registry: &Registry, observer: &Arc<dyn TurnObserver>) {
    turn_observers(registry).add(observer);
}

/// Returns the observers of the turns of a registry's agents.
pub(crate) fn turn_observers(registry: &Registry) -> WeakList<dyn TurnObserver> {
    WeakList::of(registry, "everturn/turnObservers")
}
