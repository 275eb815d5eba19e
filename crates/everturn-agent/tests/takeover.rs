//! Background runs that outlive their worker. A worker is lost when its store no longer takes its writes; it may still
//! run, and wake up later.
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_agent::store::{Deletion, Detail, Scope, SessionStore};
use everturn_agent::{
    Agent, AgentBuilder, AgentInit, AgentInput, AgentTask, Clock, Heartbeat, Snapshot, SnapshotId,
    SnapshotPolicy, SnapshotStatus, Turn, TurnContext, WorkerLoss,
};
use everturn_core::{Context, Error, Registry, Status};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use support::{FaultyStore, handling, reply, said, texts};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Longer than any lease in here.
const A_WHILE: Duration = Duration::from_secs(61);

/// A clock that goes with tokio's, the same for all workers.
fn clock() -> Clock {
    let (began, instant) = (Timestamp::from_second(1_000_000).unwrap(), Instant::now());
    Clock::new(move || began + SignedDuration::try_from(instant.elapsed()).unwrap())
}

/// One process: its way to the store, what its turns were about, and the gate that they wait at.
struct Worker {
    agent: Agent,
    store: FaultyStore,
    turns: Arc<Mutex<Vec<String>>>,
    gate: Arc<Semaphore>,
}

impl Worker {
    fn new(store: FaultyStore, clock: &Clock) -> Self {
        Self::with(store, clock, |agent| agent)
    }

    fn with(
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
                    tokio::select! {
                        permit = gate.acquire() => permit?.forget(),
                        error = turn.context().ended() => return Err(error),
                    }
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

    /// What the turns were about that this worker has begun.
    fn turns(&self) -> Vec<String> {
        self.turns.lock().unwrap().clone()
    }

    async fn detach(&self, text: &str) -> AgentTask {
        let mut chat = self.agent.chat().resume("s").open().await.unwrap();
        chat.detach(text).await.unwrap()
    }

    /// Goes silent for good, or until it is found.
    fn lose(&self) {
        self.store.fail_saves(true);
    }

    fn wake(&self) {
        self.store.fail_saves(false);
    }

    async fn row(&self, id: &SnapshotId) -> Snapshot {
        let row = self.store.get(&Scope::default(), id, Detail::Whole).await;
        row.unwrap().unwrap()
    }
}

/// Lets everything that can happen happen.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_run_goes_on_elsewhere_from_the_last_committed_state() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let second = Worker::new(first.store.elsewhere(), &clock);
    first.gate.add_permits(1);
    let start = first.agent.chat().resume("s").run("one").await.unwrap();
    let task = first.detach("two").await;
    let too_early = second.agent.recover().await;
    first.lose();

    tokio::time::sleep(A_WHILE).await;
    let recovery = second.agent.recover().await;
    second.gate.add_permits(1);
    second.agent.idle().await;

    assert!(too_early.taken_over.is_empty(), "its worker lives");
    assert_eq!(recovery.taken_over.len(), 1, "{recovery:?}");
    let run = &recovery.taken_over[0];
    assert_eq!((&run.snapshot_id, run.attempt), (task.snapshot_id(), 2));
    assert_eq!(second.turns(), ["two"]);
    let row = second
        .agent
        .get_snapshot(task.snapshot_id().clone())
        .await
        .unwrap();
    assert_eq!(row.status, SnapshotStatus::Completed);
    assert_eq!(row.parent_id.as_ref(), start.snapshot_id());
    assert_eq!(
        texts(&row.state.unwrap().messages),
        ["one", "re: one", "two", "re: two"]
    );
    assert!(row.extra.is_empty() && row.heartbeat_at.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_only_slept_is_fenced() {
    let clock = clock();
    let zombie = Worker::new(FaultyStore::default(), &clock);
    let heir = Worker::new(zombie.store.elsewhere(), &clock);
    let task = zombie.detach("plan").await;
    zombie.lose();
    tokio::time::sleep(A_WHILE).await;
    let _ = heir.agent.recover().await;
    heir.gate.add_permits(1);
    heir.agent.idle().await;
    let ended = zombie.row(task.snapshot_id()).await;

    zombie.wake();
    zombie.gate.add_permits(1);
    zombie.agent.idle().await;

    assert_eq!(zombie.row(task.snapshot_id()).await, ended);
    assert_eq!(zombie.store.saves(), 1, "the pending row is all it ever wrote");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_wakes_while_its_heir_works_stops_and_writes_nothing() {
    let clock = clock();
    let zombie = Worker::new(FaultyStore::default(), &clock);
    let heir = Worker::new(zombie.store.elsewhere(), &clock);
    let task = zombie.detach("plan").await;
    zombie.lose();
    tokio::time::sleep(A_WHILE).await;
    let _ = heir.agent.recover().await;
    settle().await;
    let held = zombie.row(task.snapshot_id()).await;

    zombie.wake();
    zombie.agent.idle().await;
    let after = zombie.row(task.snapshot_id()).await;
    heir.gate.add_permits(1);
    heir.agent.idle().await;

    assert_eq!(after.extra, held.extra, "the lease is the heir's");
    assert_eq!(zombie.store.saves(), 1, "the next beat found the row taken");
    assert_eq!(task.status().await.unwrap(), SnapshotStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn turns_that_were_finished_are_not_repeated() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let second = Worker::new(first.store.elsewhere(), &clock);
    let mut connection = first.agent.connect(AgentInit::session("s"));
    for text in ["one", "two", "three"] {
        connection.send(text).await.unwrap();
    }
    connection.detach().await.unwrap();
    let id = connection.output().await.unwrap().snapshot_id.unwrap();
    first.gate.add_permits(1);
    settle().await;
    let shown = first.agent.get_snapshot(id.clone()).await.unwrap();
    let raw = first.row(&id).await;
    let saves = first.store.saves();
    first.lose();

    tokio::time::sleep(A_WHILE).await;
    let _ = second.agent.recover().await;
    second.gate.add_permits(2);
    second.agent.idle().await;

    assert_eq!(first.turns(), ["one", "two"]);
    assert_eq!(second.turns(), ["two", "three"]);
    assert_eq!(saves, 2, "the pending row, and one record of the finished turn");
    assert!(raw.state.is_some() && shown.state.is_none() && shown.extra.is_empty());
    let row = second.agent.get_snapshot(id).await.unwrap();
    assert_eq!(row.status, SnapshotStatus::Completed);
    assert_eq!(
        texts(&row.state.unwrap().messages),
        ["one", "re: one", "two", "re: two", "three", "re: three"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_the_same_number_and_row_whoever_runs_it() {
    let clock = clock();
    let places = Arc::<Mutex<Vec<_>>>::default();
    let agent = |store: FaultyStore, stuck: bool| {
        let places = Arc::clone(&places);
        handling("worker", move |turn: Turn| {
            let places = Arc::clone(&places);
            async move {
                let place = TurnContext::current().unwrap();
                places
                    .lock()
                    .unwrap()
                    .push((place.turn_index, place.snapshot_id.clone()));
                if stuck && said(&turn) == "two" {
                    turn.context().ended().await;
                }
                reply(turn).await
            }
        })
        .clock(clock.clone())
        .store(store)
        .define()
        .unwrap()
    };
    let store = FaultyStore::default();
    let (first, second) = (agent(store.clone(), true), agent(store.elsewhere(), false));
    let mut connection = first.connect(AgentInit::session("s"));
    connection.send("one").await.unwrap();
    connection.send(AgentInput::from("two").detached()).await.unwrap();
    let id = connection.output().await.unwrap().snapshot_id;
    settle().await;
    store.fail_saves(true);

    tokio::time::sleep(A_WHILE).await;
    let _ = second.recover().await;
    second.idle().await;

    let places = places.lock().unwrap().clone();
    assert_eq!(places.len(), 3, "{places:?}");
    assert_eq!(places[1], places[2]);
    assert_eq!(places[2], (1, id));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_loses_every_worker_fails_and_says_so() {
    let clock = clock();
    let store = FaultyStore::default();
    let mut workers = vec![Worker::new(store.clone(), &clock)];
    let task = workers[0].detach("poison").await;
    workers[0].lose();

    for _ in 0..2 {
        tokio::time::sleep(A_WHILE).await;
        let next = Worker::new(store.elsewhere(), &clock);
        assert_eq!(next.agent.recover().await.taken_over.len(), 1);
        next.lose();
        workers.push(next);
    }
    tokio::time::sleep(A_WHILE).await;
    let last = Worker::new(store.elsewhere(), &clock);
    let recovery = last.agent.recover().await;
    let again = last.agent.recover().await;

    assert!(recovery.taken_over.is_empty());
    assert_eq!(recovery.given_up.len(), 1);
    assert_eq!(recovery.given_up[0].attempt, 3);
    assert!(again.given_up.is_empty() && again.taken_over.is_empty());
    let error = last.agent.chat().resume("s").run("more").await.unwrap_err();
    assert!(error.message().contains("begun 3 times"), "{error}");
    let row = last.agent.get_snapshot(task.snapshot_id().clone()).await.unwrap();
    assert_eq!(row.status, SnapshotStatus::Failed);
    assert_eq!(row.error.unwrap().status, Some(Status::Unavailable));
    assert!(last.turns().is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_two_that_look_at_once_one_takes_the_run() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let task = first.detach("plan").await;
    first.lose();
    tokio::time::sleep(A_WHILE).await;
    let heirs: Vec<Worker> = (0..8)
        .map(|_| Worker::new(first.store.elsewhere(), &clock))
        .collect();

    let looks = heirs.iter().map(|heir| heir.agent.recover());
    let recoveries = futures::future::join_all(looks).await;
    for heir in &heirs {
        heir.gate.add_permits(1);
    }
    task.wait().await.unwrap();

    let taken: usize = recoveries.iter().map(|recovery| recovery.taken_over.len()).sum();
    assert_eq!(taken, 1);
    let turns: Vec<String> = heirs.iter().flat_map(Worker::turns).collect();
    assert_eq!(turns, ["plan"]);
}

#[tokio::test(start_paused = true)]
async fn an_abort_reaches_the_worker_that_took_the_run_over() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let second = Worker::new(first.store.elsewhere(), &clock);
    let task = first.detach("plan").await;
    first.lose();
    tokio::time::sleep(A_WHILE).await;
    let _ = second.agent.recover().await;
    settle().await;

    let abort = second
        .agent
        .abort(task.snapshot_id().clone())
        .await
        .unwrap()
        .unwrap();
    second.agent.idle().await;

    assert_eq!(abort.previous, SnapshotStatus::Pending);
    let row = second.row(task.snapshot_id()).await;
    assert_eq!(row.status, SnapshotStatus::Aborted);
    assert!(row.finish_reason.is_some() && row.state.is_none() && row.extra.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_aborted_with_its_worker_gone_is_left_alone() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let second = Worker::new(first.store.elsewhere(), &clock);
    let task = first.detach("plan").await;
    first.lose();
    tokio::time::sleep(A_WHILE).await;

    second.agent.abort(task.snapshot_id().clone()).await.unwrap();
    let recovery = second.agent.recover().await;

    assert!(recovery.taken_over.is_empty() && recovery.given_up.is_empty());
    let shown = second
        .agent
        .get_snapshot(task.snapshot_id().clone())
        .await
        .unwrap();
    assert!(shown.state.is_none() && shown.extra.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_let_lost_runs_expire() {
    let clock = clock();
    let expire = |store| Worker::with(store, &clock, |agent| agent.on_worker_loss(WorkerLoss::Expire));
    let first = expire(FaultyStore::default());
    let second = expire(first.store.elsewhere());
    let task = first.detach("plan").await;
    first.lose();

    tokio::time::sleep(A_WHILE).await;
    let recovery = second.agent.recover().await;

    assert!(recovery.taken_over.is_empty());
    assert_eq!(task.status().await.unwrap(), SnapshotStatus::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_worker_does_not_take_its_own_run_from_itself() {
    let clock = clock();
    let worker = Worker::new(FaultyStore::default(), &clock);
    let task = worker.detach("plan").await;
    worker.lose();
    tokio::time::sleep(A_WHILE).await;
    worker.wake();

    let recovery = worker.agent.recover().await;
    worker.gate.add_permits(1);
    worker.agent.idle().await;

    assert!(recovery.taken_over.is_empty(), "{recovery:?}");
    assert_eq!(worker.turns(), ["plan"]);
    assert_eq!(task.status().await.unwrap(), SnapshotStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_run_outlasts_the_loss_of_its_worker() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let second = Worker::new(first.store.elsewhere(), &clock);
    second.gate.add_permits(1);
    let task = first.detach("plan").await;
    first.lose();

    let (waited, _) = tokio::join!(task.wait(), async {
        tokio::time::sleep(A_WHILE + Duration::from_secs(20)).await;
        second.agent.recover().await
    });

    assert_eq!(waited.unwrap().text(), "re: plan");
}

#[tokio::test(start_paused = true)]
async fn tenants_runs_are_taken_over_only_with_what_makes_the_tenant() {
    let clock = clock();
    let tenants = |agent: AgentBuilder<Value>| {
        agent.scope(|context: &Context| {
            let tenant = context.auth().and_then(|auth| auth["tenant"].as_str());
            tenant.map_or_else(Scope::default, Scope::new)
        })
    };
    let first = Worker::with(FaultyStore::default(), &clock, |agent| {
        tenants(agent).record_context(["auth"])
    });
    let second = Worker::with(first.store.elsewhere(), &clock, tenants);
    let context = Context::new()
        .with_value("auth", json!({"tenant": "acme"}))
        .with_value("token", "secret");
    let mut connection = first.agent.connect_in(AgentInit::session("s"), &context);
    connection
        .send(AgentInput::from("plan").detached())
        .await
        .unwrap();
    let id = connection.output().await.unwrap().snapshot_id.unwrap();
    first.lose();
    tokio::time::sleep(A_WHILE).await;

    let recovery = second.agent.recover().await;
    second.gate.add_permits(1);
    second.agent.idle().await;

    assert_eq!(recovery.taken_over.len(), 1, "{recovery:?}");
    let row = second.store.get(&Scope::new("acme"), &id, Detail::Whole).await;
    assert_eq!(row.unwrap().unwrap().status, SnapshotStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_tenants_run_that_recorded_nothing_is_not_run_as_somebody_elses() {
    let clock = clock();
    let tenants = |agent: AgentBuilder<Value>| {
        agent.scope(|context: &Context| context.auth().map_or_else(Scope::default, |_| Scope::new("acme")))
    };
    let first = Worker::with(FaultyStore::default(), &clock, tenants);
    let second = Worker::with(first.store.elsewhere(), &clock, tenants);
    let context = Context::new().with_value("auth", "ann");
    let mut connection = first.agent.connect_in(AgentInit::session("s"), &context);
    connection
        .send(AgentInput::from("plan").detached())
        .await
        .unwrap();
    connection.output().await.unwrap();
    first.lose();
    tokio::time::sleep(A_WHILE).await;

    let recovery = second.agent.recover().await;

    assert!(recovery.taken_over.is_empty());
    assert_eq!(recovery.failures.len(), 1);
    assert!(recovery.failures[0].message().contains("record_context"));
}

#[tokio::test(start_paused = true)]
async fn turns_without_a_snapshot_of_their_own_are_not_lost_with_the_worker() {
    let clock = clock();
    let sparse = |store| {
        Worker::with(store, &clock, |agent| {
            agent
                .snapshots(SnapshotPolicy::never())
                .prompt_input(json!({"tone": "kind"}))
        })
    };
    let first = sparse(FaultyStore::default());
    let second = sparse(first.store.elsewhere());
    first.gate.add_permits(1);
    let mut connection = first.agent.connect(AgentInit::session("s"));
    connection.send("one").await.unwrap();
    while connection.next().await.unwrap().turn_end.is_none() {}
    connection.send(AgentInput::from("two").detached()).await.unwrap();
    let id = connection.output().await.unwrap().snapshot_id.unwrap();
    settle().await;
    first.lose();
    tokio::time::sleep(A_WHILE).await;

    let _ = second.agent.recover().await;
    second.gate.add_permits(1);
    second.agent.idle().await;

    let state = second.row(&id).await.state.unwrap();
    assert_eq!(texts(&state.messages), ["one", "re: one", "two", "re: two"]);
    assert_eq!(state.prompt_input.as_deref(), Some(&json!({"tone": "kind"})));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_beginning_is_gone_fails_and_says_so() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let second = Worker::new(first.store.elsewhere(), &clock);
    first.gate.add_permits(1);
    let start = first.agent.chat().resume("s").run("one").await.unwrap();
    let task = first.detach("two").await;
    first.lose();
    let beginning = Deletion::Snapshots(vec![start.snapshot_id().unwrap().clone()]);
    second.store.delete(&Scope::default(), &beginning).await.unwrap();
    tokio::time::sleep(A_WHILE).await;

    let recovery = second.agent.recover().await;

    assert_eq!(recovery.given_up.len(), 1, "{recovery:?}");
    let row = second.row(task.snapshot_id()).await;
    assert_eq!(row.status, SnapshotStatus::Failed);
    assert_eq!(row.error.unwrap().status, Some(Status::DataLoss));
}

#[tokio::test(start_paused = true)]
async fn all_agents_of_a_registry_are_recovered_at_intervals_until_that_is_stopped() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let registry = Registry::new();
    let second = Worker::new(first.store.elsewhere(), &clock);
    second.agent.register(&registry).unwrap();
    second.gate.add_permits(9);
    let recovering = everturn_agent::recover_every(&registry, Duration::from_secs(10));

    let task = first.detach("plan").await;
    first.lose();
    tokio::time::sleep(A_WHILE + Duration::from_secs(10)).await;
    second.agent.idle().await;
    let reply = task.wait().await.unwrap();
    recovering.stop().await;

    first.wake();
    let lost = first
        .agent
        .chat()
        .resume("t")
        .open()
        .await
        .unwrap()
        .detach("more")
        .await
        .unwrap();
    first.lose();
    tokio::time::sleep(A_WHILE * 2).await;

    assert_eq!(reply.text(), "re: plan");
    assert_eq!(lost.status().await.unwrap(), SnapshotStatus::Expired);
}

#[test]
fn a_heartbeat_that_takes_every_run_for_dead_is_refused() {
    for (interval, expiry) in [(0, 1), (2, 2), (3, 2)] {
        let heartbeat = Heartbeat {
            interval: Duration::from_secs(interval),
            expiry: Duration::from_secs(expiry),
        };

        let error = support::replying("worker")
            .heartbeat(heartbeat)
            .build()
            .unwrap_err();

        assert_eq!(error.status(), Status::InvalidArgument);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_read_is_reported_and_hides_nothing_for_good() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let second = Worker::new(first.store.elsewhere(), &clock);
    first.detach("plan").await;
    first.lose();
    tokio::time::sleep(A_WHILE).await;
    second.store.fail_reads(true);

    let failed = second.agent.recover().await;
    second.store.fail_reads(false);
    let recovery = second.agent.recover().await;

    let told: Vec<Status> = failed.failures.iter().map(Error::status).collect();
    assert_eq!(told, [Status::Unavailable]);
    assert_eq!(recovery.taken_over.len(), 1);
}
