//! Turns of two processes on one session, locked in the store: the second is refused, or waits, before it
//! works.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_agent::store::{
    LockGrant, LockRequest, MemoryStore, Precondition, Scope, SessionStore, TIP_MOVED, TurnLocks,
};
use everturn_agent::{
    Agent, AgentBuilder, Concurrency, SESSION_BUSY, SnapshotId, Timeline, Turn, TurnLocking,
};
use everturn_core::{Error, Status};
use everturn_testkit::{Gate, elapse};
use serde_json::Value;

use crate::support::{FaultyStore, handling, reply, replying, snapshots, texts};

const LEASE: Duration = Duration::from_secs(10);

/// An agent in a separate process: two handles on one store do not share the locks of a process.
fn elsewhere(agent: AgentBuilder<Value>, store: &MemoryStore, policy: Concurrency) -> Agent {
    let agent = agent.concurrency(policy).turn_locking(TurnLocking::InStore);
    agent.turn_lease(LEASE).store(store.clone()).define().unwrap()
}

/// An agent whose turns wait at a gate and are counted.
fn gated(gate: &Gate, turns: &Arc<AtomicUsize>) -> AgentBuilder<Value> {
    let (gate, turns) = (gate.clone(), Arc::clone(turns));
    handling("chef", move |turn: Turn| {
        let (gate, turns) = (gate.clone(), Arc::clone(&turns));
        async move {
            turns.fetch_add(1, Ordering::SeqCst);
            gate.pass().await;
            reply(turn).await
        }
    })
}

async fn said_so_far(store: &MemoryStore) -> Vec<String> {
    let snapshots = snapshots(store, &"s".into()).await;
    let latest = snapshots.last().and_then(|snapshot| snapshot.state.as_ref());
    latest.map(|state| texts(&state.messages)).unwrap_or_default()
}

fn tell(agent: &Agent, text: &str) -> tokio::task::JoinHandle<Result<(), Error>> {
    let (agent, text) = (agent.clone(), text.to_owned());
    tokio::spawn(async move { agent.chat().resume("s").run(text).await.map(drop) })
}

#[tokio::test]
async fn a_second_turn_in_another_process_is_refused_before_it_works() {
    let (store, gate, turns) = (MemoryStore::new(), Gate::new(), Arc::new(AtomicUsize::new(0)));
    let here = elsewhere(gated(&gate, &turns), &store, Concurrency::Reject);
    let there = elsewhere(gated(&gate, &turns), &store, Concurrency::Reject);
    let first = tell(&here, "one");
    gate.reached().await;

    let refused = tell(&there, "two").await.unwrap().unwrap_err();
    gate.open();
    first.await.unwrap().unwrap();

    assert_eq!(refused.status(), Status::Aborted);
    assert!(refused.is(SESSION_BUSY), "{refused:?}");
    assert_eq!(
        turns.load(Ordering::SeqCst),
        1,
        "the refused turn called its function"
    );
    tell(&there, "three").await.unwrap().unwrap();
    assert_eq!(
        said_so_far(&store).await,
        ["one", "re: one", "three", "re: three"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_queued_turn_in_another_process_continues_where_the_first_one_ends() {
    let (store, gate, turns) = (MemoryStore::new(), Gate::new(), Arc::new(AtomicUsize::new(0)));
    let here = elsewhere(gated(&gate, &turns), &store, Concurrency::Queue);
    let there = elsewhere(gated(&gate, &turns), &store, Concurrency::Queue);
    let first = tell(&here, "one");
    gate.reached().await;
    let second = tell(&there, "two");
    elapse(Duration::from_millis(50)).await;
    assert_eq!(turns.load(Ordering::SeqCst), 1, "the waiting turn works already");

    gate.open();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();

    assert_eq!(said_so_far(&store).await, ["one", "re: one", "two", "re: two"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn queued_turns_of_three_processes_lose_nothing_and_none_is_refused() {
    for timeline in [Timeline::Branching, Timeline::Linear] {
        let store = MemoryStore::new();
        let agents: Vec<Agent> = (0..3)
            .map(|_| elsewhere(replying("chef").timeline(timeline), &store, Concurrency::Queue))
            .collect();

        let turns = (0..60).map(|number| tell(&agents[number % 3], &number.to_string()));
        for turn in futures::future::join_all(turns).await {
            turn.unwrap().unwrap();
        }

        let messages = said_so_far(&store).await;
        let questions: HashSet<_> = messages.iter().step_by(2).collect();
        assert_eq!((messages.len(), questions.len()), (120, 60), "{timeline:?}");
        assert!(
            messages
                .chunks(2)
                .all(|pair| pair[1] == format!("re: {}", pair[0]))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turn_that_begins_is_never_refused_at_its_commit() {
    let (store, turns) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let gate = Gate::new();
    gate.open();
    let agents: Vec<Agent> = (0..3)
        .map(|_| elsewhere(gated(&gate, &turns), &store, Concurrency::Reject))
        .collect();

    let mut done = 0;
    for round in 0..100 {
        let both = (0..3).map(|process| tell(&agents[process], &format!("{process}-{round}")));
        for outcome in futures::future::join_all(both).await {
            match outcome.unwrap() {
                Ok(()) => done += 1,
                Err(error) => assert!(error.is(SESSION_BUSY) || error.is(TIP_MOVED), "{error:?}"),
            }
        }
    }

    assert_eq!(said_so_far(&store).await.len(), done * 2);
    assert_eq!(turns.load(Ordering::SeqCst), done, "a refused turn worked");
}

/// Takes the lock of the session's beginning as a turn of a process that dies.
async fn hold_and_die(store: &MemoryStore) {
    let request = LockRequest::new(
        "s".into(),
        "dead".into(),
        Precondition::unfollowed(None),
        Duration::from_secs(30),
    );
    let granted = store.take(&Scope::default(), &request).await.unwrap();
    assert_eq!(granted, LockGrant::Held);
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_process_that_died_lapses() {
    let store = MemoryStore::new();
    let reject = elsewhere(replying("chef"), &store, Concurrency::Reject);
    let queue = elsewhere(replying("chef"), &store, Concurrency::Queue);
    hold_and_die(&store).await;
    let begun = tokio::time::Instant::now();

    let refused = tell(&reject, "too early").await.unwrap().unwrap_err();
    tell(&queue, "in time").await.unwrap().unwrap();

    assert!(refused.message().contains("dead"), "{refused}");
    let waited = begun.elapsed();
    assert!(
        (Duration::from_secs(30)..Duration::from_secs(31)).contains(&waited),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_takes_longer_than_its_lease_keeps_its_lock() {
    let store = MemoryStore::new();
    let slow = handling("chef", |turn: Turn| async move {
        elapse(LEASE * 5).await;
        reply(turn).await
    });
    let here = elsewhere(slow, &store, Concurrency::Reject);
    let there = elsewhere(replying("chef"), &store, Concurrency::Reject);
    let first = tell(&here, "slow");

    elapse(LEASE * 4).await;
    let refused = tell(&there, "quick").await.unwrap().unwrap_err();

    assert!(refused.is(SESSION_BUSY), "{refused:?}");
    first.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_turn_that_lost_its_lock_cannot_commit() {
    let store = MemoryStore::new();
    let robbed = store.clone();
    let agent = handling("chef", move |turn: Turn| {
        let store = robbed.clone();
        async move {
            let own = turn.snapshot_id().cloned().expect("a turn has an id");
            // As if the process had slept through its lease, and another one had taken the lock.
            store.release(&Scope::default(), &"s".into(), &own).await?;
            hold_and_die(&store).await;
            reply(turn).await
        }
    });
    let agent = elsewhere(agent, &store, Concurrency::Reject);

    let lost = tell(&agent, "one").await.unwrap().unwrap_err();

    assert_eq!(lost.status(), Status::Aborted);
    assert!(lost.message().contains("lost its lock"), "{lost:?}");
    assert!(said_so_far(&store).await.is_empty());
}

#[tokio::test]
async fn a_turn_that_fails_releases_its_lock_before_its_client_is_answered() {
    let store = MemoryStore::new();
    let here = elsewhere(replying("chef"), &store, Concurrency::Reject);
    let there = elsewhere(replying("chef"), &store, Concurrency::Reject);

    for _ in 0..20 {
        tell(&here, "boom").await.unwrap().unwrap_err();
        tell(&there, "well").await.unwrap().unwrap();
    }

    assert_eq!(said_so_far(&store).await.len(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_it_waits_leaves_the_queue() {
    let (store, gate, turns) = (MemoryStore::new(), Gate::new(), Arc::new(AtomicUsize::new(0)));
    let here = elsewhere(gated(&gate, &turns), &store, Concurrency::Queue);
    let there = elsewhere(gated(&gate, &turns), &store, Concurrency::Queue);
    let first = tell(&here, "one");
    gate.reached().await;
    let impatient = tell(&there, "two");
    elapse(Duration::from_millis(50)).await;

    impatient.abort();
    assert!(impatient.await.unwrap_err().is_cancelled());
    gate.open();
    first.await.unwrap().unwrap();
    // Well within the lease that the one who left would have kept its place for.
    tokio::time::timeout(LEASE / 2, tell(&here, "three"))
        .await
        .unwrap()
        .unwrap()
        .unwrap();

    assert_eq!(
        said_so_far(&store).await,
        ["one", "re: one", "three", "re: three"]
    );
}

#[tokio::test]
async fn branches_of_one_session_run_side_by_side() {
    let (store, gate, turns) = (MemoryStore::new(), Gate::new(), Arc::new(AtomicUsize::new(0)));
    let quick = elsewhere(replying("chef"), &store, Concurrency::Reject);
    let root = quick.chat().resume("s").run("root").await.unwrap();
    let root = root.snapshot_id().unwrap().clone();
    quick.chat().resume("s").run("trunk").await.unwrap();
    let slow = elsewhere(gated(&gate, &turns), &store, Concurrency::Reject);
    let trunk = tell(&slow, "slow");
    gate.reached().await;

    let branch = quick.chat().snapshot(root).run("branch").await.unwrap();

    assert_eq!(branch.text(), "re: branch");
    gate.open();
    trunk.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_run_in_the_background_needs_no_lock_once_it_is_durable() {
    let (store, gate, turns) = (MemoryStore::new(), Gate::new(), Arc::new(AtomicUsize::new(0)));
    let agent = elsewhere(gated(&gate, &turns), &store, Concurrency::Reject);
    let mut chat = agent.chat().resume("s").open().await.unwrap();

    let task = chat.detach("one").await.unwrap();
    gate.reached().await;
    let run: SnapshotId = task.snapshot_id().clone();
    let released = store
        .renew(&Scope::default(), &"s".into(), &run, LEASE)
        .await
        .unwrap();

    assert!(!released, "the run keeps the lock of its first turn");
    gate.open();
    task.wait().await.unwrap();
    tell(&agent, "two").await.unwrap().unwrap();
    assert_eq!(said_so_far(&store).await, ["one", "re: one", "two", "re: two"]);
}

#[tokio::test]
async fn a_store_without_locks_is_refused_where_they_are_asked_for() {
    let refused = replying("chef").turn_locking(TurnLocking::InStore).build();

    let error = refused.err().unwrap();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("turn locks"), "{error}");
    let short = replying("chef")
        .turn_locking(TurnLocking::InStore)
        .turn_lease(Duration::from_millis(1))
        .store(FaultyStore::default());
    assert!(short.build().is_err());
    assert!(FaultyStore::default().turn_locks().is_some());
}

#[tokio::test]
async fn a_turn_that_cannot_be_saved_lets_go_of_its_lock() {
    let store = FaultyStore::default();
    let agent = replying("chef")
        .turn_locking(TurnLocking::InStore)
        .store(store.clone())
        .define()
        .unwrap();
    store.fail_saves(true);

    let failed = agent.chat().resume("s").run("one").await.unwrap_err();

    assert_eq!(failed.status(), Status::ResourceExhausted);
    store.fail_saves(false);
    assert_eq!(
        agent.chat().resume("s").run("two").await.unwrap().text(),
        "re: two"
    );
}
