//! Two turns at once on one session: nothing is lost, nothing is mixed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{MemoryStore, TIP_MOVED};
use everturn_agent::{
    Agent, AgentBuilder, AgentInit, AgentReply, Concurrency, SESSION_BUSY, SessionId, Snapshot, Turn,
};
use everturn_core::{Result, Status};
use everturn_testkit::elapse;
use serde_json::Value;

use crate::support;
use crate::support::{handling, reply, said, snapshots, texts};

const ROUNDS: usize = 1_000;

/// An agent whose turns let others run in between.
fn yielding(name: &str, policy: Concurrency) -> AgentBuilder<Value> {
    handling(name, |turn: Turn| async move {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        reply(turn).await
    })
    .concurrency(policy)
}

/// Runs two turns at once on one session, round after round, and gives what came of each with what it said.
async fn race(agent: &Agent) -> Vec<(String, Result<AgentReply>)> {
    let mut outcomes = Vec::new();
    for round in 0..ROUNDS {
        let turn = |who: &str| {
            let (agent, text) = (agent.clone(), format!("{who}{round}"));
            tokio::spawn(async move { (text.clone(), agent.chat().resume("s").run(text).await) })
        };
        let (one, other) = (turn("a"), turn("b"));
        outcomes.push(one.await.unwrap());
        outcomes.push(other.await.unwrap());
    }
    outcomes
}

/// Every question is followed by its own answer.
fn assert_not_mixed(messages: &[String]) {
    for pair in messages.chunks(2) {
        assert_eq!(pair[1], format!("re: {}", pair[0]));
    }
}

fn questions(snapshot: &Snapshot) -> Vec<String> {
    let messages = texts(&snapshot.state.as_ref().unwrap().messages);
    assert_not_mixed(&messages);
    messages.into_iter().step_by(2).collect()
}

/// Each snapshot adds one turn to the one before it.
fn assert_linear(snapshots: &[Snapshot]) {
    for (index, pair) in snapshots.windows(2).enumerate() {
        assert_eq!(
            pair[1].parent_id.as_ref(),
            Some(&pair[0].snapshot_id),
            "row {index}"
        );
        assert!(pair[1].position() > pair[0].position());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reject_loses_nothing_and_tells_the_second_who_holds_the_session() {
    let store = Arc::new(MemoryStore::new());
    let agent = yielding("reject", Concurrency::Reject)
        .store(Arc::clone(&store))
        .define()
        .unwrap();

    let outcomes = race(&agent).await;

    let snapshots = snapshots(store.as_ref(), &"s".into()).await;
    let (done, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|(_, outcome)| outcome.is_ok());
    assert_linear(&snapshots);
    let said = questions(snapshots.last().unwrap());
    assert_eq!(said.len(), done.len());
    assert_eq!(
        said.into_iter().collect::<HashSet<_>>(),
        done.into_iter().map(|(text, _)| text).collect()
    );
    assert!(!refused.is_empty(), "turns did overlap");
    for (text, outcome) in refused {
        let error = outcome.unwrap_err();
        assert_eq!(error.status(), Status::Aborted, "{text}: {error}");
        assert!(error.is(SESSION_BUSY) || error.is(TIP_MOVED), "{error:?}");
        assert!(error.public_message().is_some());
        assert!(
            AgentReply::<Value>::of(&error).is_none(),
            "nothing began, so there is no failed output"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn queue_serves_both_one_after_the_other() {
    let store = Arc::new(MemoryStore::new());
    let agent = yielding("queue", Concurrency::Queue)
        .store(Arc::clone(&store))
        .define()
        .unwrap();

    let outcomes = race(&agent).await;

    let snapshots = snapshots(store.as_ref(), &"s".into()).await;
    for (text, outcome) in &outcomes {
        assert!(outcome.is_ok(), "{text}: {outcome:?}");
    }
    assert_eq!(snapshots.len(), 2 * ROUNDS);
    assert_linear(&snapshots);
    let said: HashSet<_> = questions(snapshots.last().unwrap()).into_iter().collect();
    assert_eq!(said.len(), 2 * ROUNDS);
    assert_eq!(said, outcomes.into_iter().map(|(text, _)| text).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fork_lets_both_run_and_keeps_every_branch() {
    let store = Arc::new(MemoryStore::new());
    let agent = yielding("fork", Concurrency::Fork)
        .store(Arc::clone(&store))
        .define()
        .unwrap();

    let outcomes = race(&agent).await;

    let snapshots = snapshots(store.as_ref(), &"s".into()).await;
    assert_eq!(snapshots.len(), 2 * ROUNDS);
    let mut children: std::collections::HashMap<_, usize> = std::collections::HashMap::new();
    for snapshot in &snapshots {
        *children.entry(snapshot.parent_id.clone()).or_default() += 1;
    }
    assert!(children.values().any(|count| *count == 2), "turns did overlap");
    for (text, outcome) in outcomes {
        let id = outcome.unwrap().snapshot_id().unwrap().clone();
        let snapshot = snapshots
            .iter()
            .find(|snapshot| snapshot.snapshot_id == id)
            .unwrap();
        assert_eq!(questions(snapshot).last(), Some(&text));
    }
}

/// Waits in the turn `slow` until it is released.
fn gated(policy: Concurrency, store: &Arc<MemoryStore>) -> (Agent, Arc<tokio::sync::Semaphore>) {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let agent = {
        let gate = Arc::clone(&gate);
        handling("gated", move |turn: Turn| {
            let gate = Arc::clone(&gate);
            async move {
                if said(&turn).starts_with("slow") {
                    turn.send_chunk("inside").await?;
                    gate.acquire().await?.forget();
                }
                reply(turn).await
            }
        })
        .concurrency(policy)
        .store(Arc::clone(store))
        .define()
        .unwrap()
    };
    (agent, gate)
}

#[tokio::test]
async fn a_rejected_first_turn_names_the_holder_and_a_later_one_is_a_failed_turn() {
    let store = Arc::new(MemoryStore::new());
    let (agent, gate) = gated(Concurrency::Reject, &store);
    let mut waiting = agent.connect(AgentInit::session("s"));
    waiting.send("one").await.unwrap();
    waiting.next().await.unwrap();
    let mut holder = agent.connect(AgentInit::session("s"));
    holder.send("slow").await.unwrap();
    holder.next().await.unwrap();

    let refused = agent.chat().resume("s").run("two").await.unwrap_err();
    waiting.send("three").await.unwrap();
    let ended = waiting.next().await.unwrap().turn_end.unwrap();
    let failed = waiting.output().await.unwrap();
    gate.add_permits(1);
    let held = holder.output().await.unwrap().snapshot_id.unwrap();

    assert!(
        refused.message().contains(held.as_str()),
        "{refused} names {held}"
    );
    assert_eq!(
        support::json(&ended),
        serde_json::json!({"finishReason": "failed"})
    );
    assert_eq!(failed.error.unwrap().status, Some(Status::Aborted));
    assert_eq!(snapshots(store.as_ref(), &"s".into()).await.len(), 2);
}

#[tokio::test]
async fn a_queued_turn_continues_from_the_turn_before_it() {
    let store = Arc::new(MemoryStore::new());
    let (agent, gate) = gated(Concurrency::Queue, &store);
    let mut holder = agent.connect(AgentInit::session("s"));
    holder.send("slow").await.unwrap();
    holder.next().await.unwrap();

    let second = tokio::spawn({
        let agent = agent.clone();
        async move { agent.chat().resume("s").run("two").await }
    });
    tokio::task::yield_now().await;
    gate.add_permits(1);
    holder.output().await.unwrap();
    let second = second.await.unwrap().unwrap();

    let snapshot = agent
        .get_snapshot(second.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    assert_eq!(
        texts(&snapshot.state.unwrap().messages),
        ["slow", "re: slow", "two", "re: two"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_queued_turn_whose_client_leaves_gives_up_its_place() {
    let store = Arc::new(MemoryStore::new());
    let (agent, gate) = gated(Concurrency::Queue, &store);
    let mut holder = agent.connect(AgentInit::session("s"));
    holder.send("slow").await.unwrap();
    holder.next().await.unwrap();
    let leaving = agent.connect(AgentInit::session("s"));
    leaving.send("never").await.unwrap();
    elapse(Duration::from_millis(1)).await;

    drop(leaving);
    gate.add_permits(1);
    holder.output().await.unwrap();
    let next = agent.chat().resume("s").run("two").await.unwrap();
    agent.idle().await;

    let snapshot = agent
        .get_snapshot(next.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    assert_eq!(
        texts(&snapshot.state.unwrap().messages),
        ["slow", "re: slow", "two", "re: two"]
    );
}

#[tokio::test]
async fn two_processes_are_told_apart_at_the_commit() {
    // Two agents with stores behind different pointers know nothing of each other's claims, like two
    // processes.
    let shared = MemoryStore::new();
    let (one, gate) = gated(Concurrency::Reject, &Arc::new(shared.clone()));
    let other = support::replying("other").store(shared.clone()).define().unwrap();
    let session: SessionId = "s".into();
    let mut slow = one.connect(AgentInit::session("s"));
    slow.send("slow").await.unwrap();
    slow.next().await.unwrap();

    other.chat().resume(session.clone()).run("quick").await.unwrap();
    gate.add_permits(1);
    let error = slow.output().await.unwrap_err();

    // The same as within one process: an error, and not the output of a turn that failed.
    assert_eq!(error.status(), Status::Aborted);
    assert!(error.message().contains("moved on"), "{error}");
    assert_eq!(
        texts(
            &snapshots(&shared, &session).await[0]
                .state
                .as_ref()
                .unwrap()
                .messages
        ),
        ["quick", "re: quick"]
    );
}

#[tokio::test]
async fn two_resumes_of_one_snapshot_never_see_each_other() {
    let store = Arc::new(MemoryStore::new());
    let agent = support::replying("chef")
        .store(Arc::clone(&store))
        .concurrency(Concurrency::Fork)
        .define()
        .unwrap();
    let start = agent.chat().resume("s").run("start").await.unwrap();

    let branch = |text: &'static str| {
        agent
            .chat()
            .snapshot(start.snapshot_id().unwrap().clone())
            .run(text)
    };
    let (left, right) = tokio::join!(branch("left"), branch("right"));

    for (reply, text) in [(left, "left"), (right, "right")] {
        let snapshot = agent
            .get_snapshot(reply.unwrap().snapshot_id().unwrap().clone())
            .await
            .unwrap();
        assert_eq!(snapshot.parent_id.as_ref(), start.snapshot_id());
        assert_eq!(
            texts(&snapshot.state.unwrap().messages),
            ["start", "re: start", text, &format!("re: {text}")]
        );
    }
}
