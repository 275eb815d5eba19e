//! A run that another worker takes over repeats nothing, and the worker that lost it does nothing more.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_agent::store::{Detail, Scope, SessionStore};
use everturn_agent::{
    Agent, AgentBuilder, AgentInit, Clock, Concurrency, Heartbeat, SnapshotEvent, SnapshotId, SnapshotPolicy,
    SnapshotStatus, Turn,
};
use everturn_ai::Replay;
use everturn_testkit::elapse;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::support::{FaultyStore, handling, reply, said};
use crate::takeover_support::{A_WHILE, clock, pass, settle};

/// A few signs of life long, and much shorter than tests wait for a lost worker.
const HEARTBEAT: Heartbeat = Heartbeat {
    interval: Duration::from_secs(10),
    expiry: Duration::from_secs(40),
};

/// The payments of all workers.
type Payments = Arc<Mutex<Vec<String>>>;

/// One process. Its turns wait at the first gate, pay the requested amount, and wait at the second.
struct Worker {
    agent: Agent,
    store: FaultyStore,
    before: Arc<Semaphore>,
    after: Arc<Semaphore>,
}

/// Workers of one store, whose clock goes with tokio's.
struct World {
    clock: Clock,
    store: FaultyStore,
    paid: Payments,
}

impl World {
    fn new() -> Self {
        Self {
            clock: clock(),
            store: FaultyStore::default(),
            paid: Payments::default(),
        }
    }

    fn worker(&self, settings: impl FnOnce(AgentBuilder<Value>) -> AgentBuilder<Value>) -> Worker {
        let (before, after) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (gates, paid) = ((Arc::clone(&before), Arc::clone(&after)), Arc::clone(&self.paid));
        let agent = handling("cashier", move |turn: Turn| {
            let ((before, after), paid) = (gates.clone(), Arc::clone(&paid));
            async move {
                let what = said(&turn);
                pass(&before, &turn).await?;
                turn.effect("pay", Replay::Once)
                    .run(|_| async move {
                        paid.lock().unwrap().push(what);
                        Ok(())
                    })
                    .await?;
                pass(&after, &turn).await?;
                reply(turn).await
            }
        });
        let store = self.store.elsewhere();
        let agent = agent
            .clock(self.clock.clone())
            .heartbeat(HEARTBEAT)
            .store(store.clone());
        Worker {
            agent: settings(agent).define().unwrap(),
            store,
            before,
            after,
        }
    }

    fn paid(&self) -> Vec<String> {
        self.paid.lock().unwrap().clone()
    }

    async fn status(&self, id: &SnapshotId) -> SnapshotStatus {
        let snapshot = self.store.get(&Scope::default(), id, Detail::Metadata).await;
        snapshot.unwrap().unwrap().status
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_run_was_taken_over_stops_before_the_new_worker_has_acted() {
    let world = World::new();
    let (zombie, heir) = (world.worker(|agent| agent), world.worker(|agent| agent));
    let mut chat = zombie.agent.chat().resume("s").open().await.unwrap();
    let task = chat.detach("rent").await.unwrap();
    zombie.store.fail_saves(true);
    elapse(A_WHILE).await;
    let _ = heir.agent.recover().await;
    settle().await;

    zombie.store.fail_saves(false);
    zombie.before.add_permits(1);
    settle().await;
    let paid_by_zombie = world.paid();
    heir.before.add_permits(1);
    heir.after.add_permits(1);
    heir.agent.idle().await;

    assert!(paid_by_zombie.is_empty(), "the run is the heir's");
    assert_eq!(zombie.store.records(), 0, "what it wanted to write was refused");
    assert_eq!(world.paid(), ["rent"]);
    assert_eq!(world.status(task.snapshot_id()).await, SnapshotStatus::Completed);
}

/// Effects of a turn whose client left are not repeated by a worker that takes it over.
async fn nothing_is_paid_twice(settings: impl Fn(AgentBuilder<Value>) -> AgentBuilder<Value>) {
    let world = World::new();
    let (first, second) = (world.worker(&settings), world.worker(&settings));
    first.before.add_permits(2);
    first.after.add_permits(1);
    let mut connection = first.agent.connect(AgentInit::session("s"));
    connection.send("rent").await.unwrap();
    connection.send("food").await.unwrap();
    settle().await;
    connection.detach().await.unwrap();
    let id = connection.output().await.unwrap().snapshot_id.unwrap();
    first.store.fail_saves(true);

    elapse(A_WHILE).await;
    let recovery = second.agent.recover().await;
    second.before.add_permits(1);
    second.after.add_permits(1);
    second.agent.idle().await;

    assert_eq!(recovery.taken_over.len(), 1, "{recovery:?}");
    assert_eq!(world.paid(), ["rent", "food"]);
    assert_eq!(world.status(&id).await, SnapshotStatus::Completed);
    assert_eq!(
        second.store.cleared(),
        1,
        "the journal went with the end of the run"
    );
}

#[tokio::test(start_paused = true)]
async fn the_journal_of_a_turn_that_ran_at_the_detach_is_found() {
    nothing_is_paid_twice(|agent| agent).await;
}

#[tokio::test(start_paused = true)]
async fn the_journal_of_a_forking_agents_turn_is_found() {
    nothing_is_paid_twice(|agent| agent.concurrency(Concurrency::Fork)).await;
}

#[tokio::test(start_paused = true)]
async fn the_journal_of_a_turn_after_one_without_a_snapshot_is_found() {
    nothing_is_paid_twice(|agent| agent.snapshots(SnapshotPolicy::on([SnapshotEvent::InvocationEnd]))).await;
}

#[tokio::test(start_paused = true)]
async fn journals_of_recorded_turns_are_dropped_once_and_the_rest_is_found() {
    let world = World::new();
    let (first, second) = (world.worker(|agent| agent), world.worker(|agent| agent));
    let mut connection = first.agent.connect(AgentInit::session("s"));
    for what in ["rent", "food", "fuel"] {
        connection.send(what).await.unwrap();
    }
    connection.detach().await.unwrap();
    let id = connection.output().await.unwrap().snapshot_id.unwrap();
    first.before.add_permits(3);
    first.after.add_permits(2);
    settle().await;
    let dropped = first.store.cleared();
    first.store.fail_saves(true);

    elapse(A_WHILE).await;
    let _ = second.agent.recover().await;
    second.before.add_permits(1);
    second.after.add_permits(1);
    second.agent.idle().await;

    assert_eq!(dropped, 2, "one for each turn that is recorded");
    assert_eq!(world.paid(), ["rent", "food", "fuel"]);
    assert_eq!(world.status(&id).await, SnapshotStatus::Completed);
    assert_eq!(second.store.cleared(), 1);
}
