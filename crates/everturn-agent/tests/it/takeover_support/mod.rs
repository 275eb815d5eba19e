//! Workers that are lost when their store no longer takes their writes; they may still run, and wake up
//! later.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_agent::store::{Detail, Scope, SessionStore};
use everturn_agent::{
    Agent, AgentBuilder, AgentInit, AgentInput, AgentTask, Clock, Snapshot, SnapshotId, Turn,
};
use everturn_core::{Context, Result};
use everturn_testkit::elapse;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::support::{FaultyStore, handling, reply, said};

/// Longer than any lease in here.
pub(crate) const A_WHILE: Duration = Duration::from_secs(61);

/// A clock that goes with tokio's, the same for all workers.
pub(crate) fn clock() -> Clock {
    let (began, instant) = (Timestamp::from_second(1_000_000).unwrap(), Instant::now());
    Clock::new(move || began + SignedDuration::try_from(instant.elapsed()).unwrap())
}

/// One process: its way to the store, what its turns were about, and the gate that they wait at.
pub(crate) struct Worker {
    pub(crate) agent: Agent,
    pub(crate) store: FaultyStore,
    turns: Arc<Mutex<Vec<String>>>,
    pub(crate) gate: Arc<Semaphore>,
}

impl Worker {
    pub(crate) fn new(store: FaultyStore, clock: &Clock) -> Self {
        Self::with(store, clock, |agent| agent)
    }

    /// Two workers of one store.
    pub(crate) fn two() -> (Self, Self) {
        let clock = clock();
        let first = Self::new(FaultyStore::default(), &clock);
        let second = Self::new(first.store.elsewhere(), &clock);
        (first, second)
    }

    pub(crate) fn with(
        store: FaultyStore,
        clock: &Clock,
        settings: impl FnOnce(AgentBuilder<Value>) -> AgentBuilder<Value>,
    ) -> Self {
        let (turns, gate) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(Semaphore::new(0)));
        let agent = {
            let (turns, gate) = (Arc::clone(&turns), Arc::clone(&gate));
            handling("worker", move |turn: Turn| {
                let (turns, gate) = (Arc::clone(&turns), Arc::clone(&gate));
                async move {
                    turns.lock().unwrap().push(said(&turn));
                    pass(&gate, &turn).await?;
                    reply(turn).await
                }
            })
        };
        let agent = settings(agent.clock(clock.clone()).store(store.clone()))
            .define()
            .unwrap();
        Self {
            agent,
            store,
            turns,
            gate,
        }
    }

    /// The messages of the turns that this worker has begun.
    pub(crate) fn turns(&self) -> Vec<String> {
        self.turns.lock().unwrap().clone()
    }

    pub(crate) async fn detach(&self, text: &str) -> AgentTask {
        let mut chat = self.agent.chat().resume("s").open().await.unwrap();
        chat.detach(text).await.unwrap()
    }

    /// Leaves a run in the background for a caller; returns its snapshot.
    pub(crate) async fn detach_in(&self, context: &Context, text: &str) -> SnapshotId {
        let mut connection = self.agent.connect_in(AgentInit::session("s"), context);
        let run = AgentInput::from(text).detached();
        connection.send(run).await.unwrap();
        connection.output().await.unwrap().snapshot_id.unwrap()
    }

    /// Goes silent for good, or until it is found.
    pub(crate) fn lose(&self) {
        self.store.fail_saves(true);
    }

    pub(crate) fn wake(&self) {
        self.store.fail_saves(false);
    }

    pub(crate) async fn snapshot(&self, id: &SnapshotId) -> Snapshot {
        let snapshot = self.store.get(&Scope::default(), id, Detail::Whole).await;
        snapshot.unwrap().unwrap()
    }
}

/// Waits at a gate, for as long as the turn may.
pub(crate) async fn pass(gate: &Semaphore, turn: &Turn) -> Result<()> {
    tokio::select! {
        permit = gate.acquire() => permit?.forget(),
        error = turn.context().ended() => return Err(error),
    }
    Ok(())
}

/// Lets everything that can happen happen.
pub(crate) async fn settle() {
    elapse(Duration::from_millis(1)).await;
}
