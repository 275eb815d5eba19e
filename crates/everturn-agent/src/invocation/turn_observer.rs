//! Observers of turns that end, for metrics.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use everturn_ai::UsageTotal;
use everturn_core::{Registry, Status};
use parking_lot::Mutex;

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
    TurnObservers::of(registry).add(Arc::downgrade(observer));
}

/// The observers of a registry's agents. A clone shares them.
#[derive(Clone, Default)]
pub(crate) struct TurnObservers(Arc<Mutex<Vec<Weak<dyn TurnObserver>>>>);

impl TurnObservers {
    /// Returns the observers of a registry, in which they are a value.
    pub(crate) fn of(registry: &Registry) -> Self {
        const KEY: &str = "everturn/turnObservers";
        // One at a time: two that find none must not make two.
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock();
        if let Some(observers) = registry.value::<Self>(KEY) {
            return Self::clone(&observers);
        }
        let observers = Self::default();
        registry.set_value(KEY, observers.clone());
        observers
    }

    fn add(&self, observer: Weak<dyn TurnObserver>) {
        let mut observers = self.0.lock();
        observers.retain(|observer| observer.strong_count() > 0);
        observers.push(observer);
    }

    pub(crate) fn notify(&self, turn: &EndedTurn<'_>) {
        self.each(|observer| observer.turn_ended(turn));
    }

    pub(crate) fn each(&self, notify: impl Fn(&dyn TurnObserver)) {
        let observers: Vec<_> = {
            let observers = self.0.lock();
            observers.iter().filter_map(Weak::upgrade).collect()
        };
        for observer in observers {
            notify(&*observer);
        }
    }
}

impl fmt::Debug for TurnObservers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TurnObservers")
    }
}
