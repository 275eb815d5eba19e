//! Branches that grow at once: a turn is in the way of those that continue the same snapshot, and of no
//! other.

use std::sync::Arc;

use everturn_agent::store::{Detail, MemoryStore, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{
    Agent, AgentBuilder, AgentConnection, AgentInit, Concurrency, SESSION_BUSY, Snapshot, SnapshotId,
    SnapshotStatus, Timeline, Turn,
};
use everturn_core::Status;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::support::{self, handling, reply, said, snapshots, texts};

/// An agent whose turns that say `slow` wait until they are let go on.
fn waiting_at(gate: &Arc<Semaphore>) -> AgentBuilder<Value> {
    let gate = Arc::clone(gate);
    handling("gated", move |turn: Turn| {
        let gate = Arc::clone(&gate);
        async move {
            if said(&turn) == "slow" {
                turn.send_chunk("inside").await?;
                gate.acquire().await?.forget();
            }
            reply(turn).await
        }
    })
}

fn gated(policy: Concurrency, store: MemoryStore) -> (Agent, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let agent = waiting_at(&gate).concurrency(policy).store(store);
    (agent.define().unwrap(), gate)
}

async fn say(agent: &Agent, after: &SnapshotId, text: &str) -> SnapshotId {
    let reply = agent.chat().snapshot(after.clone()).run(text.to_owned()).await;
    reply.unwrap().snapshot_id().unwrap().clone()
}

/// A session of two turns; returns their snapshots.
async fn trunk(agent: &Agent) -> [SnapshotId; 2] {
    let first = agent.chat().resume("s").run("one").await.unwrap();
    let first = first.snapshot_id().unwrap().clone();
    let second = say(agent, &first, "two").await;
    [first, second]
}

/// Begins a turn that stays inside until the gate opens.
async fn begin(agent: &Agent, init: AgentInit) -> AgentConnection {
    let mut connection = agent.connect(init);
    connection.send("slow").await.unwrap();
    connection.next().await.unwrap();
    connection
}

async fn read(agent: &Agent, id: &SnapshotId) -> Snapshot {
    agent.get_snapshot(id.clone()).await.unwrap()
}

fn conversation(snapshot: &Snapshot) -> Vec<String> {
    texts(&snapshot.state.as_ref().unwrap().messages)
}

#[tokio::test]
async fn a_branch_that_commits_under_a_running_turn_is_not_in_its_way() {
    for policy in [Concurrency::Reject, Concurrency::Queue, Concurrency::Fork] {
        let (agent, gate) = gated(policy, MemoryStore::new());
        let [first, second] = trunk(&agent).await;
        let mut running = begin(&agent, AgentInit::session("s")).await;

        let branch = say(&agent, &first, "aside").await;
        gate.add_permits(1);
        let output = running.output().await.unwrap();

        assert_eq!(output.error, None, "{policy:?}");
        let kept = read(&agent, &output.snapshot_id.unwrap()).await;
        let aside = read(&agent, &branch).await;
        assert_eq!(kept.parent_id, Some(second));
        assert_eq!(
            conversation(&kept),
            ["one", "re: one", "two", "re: two", "slow", "re: slow"]
        );
        assert_eq!(aside.parent_id, Some(first));
        assert_eq!(conversation(&aside), ["one", "re: one", "aside", "re: aside"]);
    }
}

#[tokio::test]
async fn a_turn_at_the_tip_commits_under_a_running_branch() {
    let (agent, gate) = gated(Concurrency::Reject, MemoryStore::new());
    let [first, second] = trunk(&agent).await;
    let mut branch = begin(&agent, AgentInit::snapshot(first.clone())).await;

    let third = say(&agent, &second, "three").await;
    gate.add_permits(1);
    let output = branch.output().await.unwrap();

    assert_eq!(output.error, None);
    assert_eq!(read(&agent, &third).await.parent_id, Some(second));
    let aside = read(&agent, &output.snapshot_id.unwrap()).await;
    assert_eq!(aside.parent_id, Some(first));
}

#[tokio::test]
async fn branches_of_two_processes_are_kept() {
    // Stores behind different pointers know nothing of each other's locks, like two processes.
    let shared = MemoryStore::new();
    let (one, gate) = gated(Concurrency::Reject, shared.clone());
    let other = support::replying("other").store(shared).define().unwrap();
    let [first, second] = trunk(&one).await;
    let mut running = begin(&one, AgentInit::session("s")).await;

    let branch = say(&other, &first, "aside").await;
    say(&other, &branch, "further").await;
    gate.add_permits(1);
    let output = running.output().await.unwrap();

    assert_eq!(output.error, None);
    let kept = read(&one, &output.snapshot_id.unwrap()).await;
    assert_eq!(kept.parent_id, Some(second));
}

#[tokio::test]
async fn two_turns_that_continue_the_end_of_a_branch_conflict_although_it_is_not_the_latest() {
    let shared = MemoryStore::new();
    let (one, gate) = gated(Concurrency::Reject, shared.clone());
    let other = support::replying("other").store(shared.clone()).define().unwrap();
    let [first, second] = trunk(&one).await;
    say(&one, &first, "aside").await;
    let mut running = begin(&one, AgentInit::snapshot(second.clone())).await;

    let busy = one.chat().snapshot(second.clone()).run("too").await.unwrap_err();
    say(&other, &second, "faster").await;
    gate.add_permits(1);
    let error = running.output().await.unwrap_err();

    assert!(busy.is(SESSION_BUSY), "{busy}");
    assert_eq!(error.status(), Status::Aborted);
    assert!(error.message().contains("moved on"), "{error}");
    let children = shared.children(&Scope::default(), &second).await.unwrap();
    assert_eq!(children.len(), 1);
}

#[tokio::test]
async fn a_forking_turn_becomes_a_branch_when_its_snapshot_was_continued_meanwhile() {
    let shared = MemoryStore::new();
    let (one, gate) = gated(Concurrency::Fork, shared.clone());
    // Behind another pointer, like another process.
    let (other, _) = gated(Concurrency::Fork, shared.clone());
    let [_, second] = trunk(&one).await;
    let mut running = begin(&one, AgentInit::session("s")).await;

    let here = say(&one, &second, "here").await;
    let elsewhere = say(&other, &second, "elsewhere").await;
    gate.add_permits(1);
    let output = running.output().await.unwrap();

    assert_eq!(output.error, None);
    let mut expected = vec![here, elsewhere, output.snapshot_id.unwrap()];
    let children = shared.children(&Scope::default(), &second).await.unwrap();
    let mut children: Vec<_> = children.into_iter().map(|child| child.snapshot_id).collect();
    expected.sort();
    children.sort();
    assert_eq!(children, expected);
}

#[tokio::test]
async fn a_queued_turn_stays_on_its_branch() {
    let (agent, gate) = gated(Concurrency::Queue, MemoryStore::new());
    let [first, second] = trunk(&agent).await;
    let mut running = begin(&agent, AgentInit::snapshot(second.clone())).await;
    let waiting = tokio::spawn({
        let chat = agent.chat().snapshot(second);
        async move { chat.run("queued").await }
    });
    tokio::task::yield_now().await;

    say(&agent, &first, "aside").await;
    gate.add_permits(1);
    let before = running.output().await.unwrap().snapshot_id;
    let queued = waiting.await.unwrap().unwrap();

    let queued = read(&agent, queued.snapshot_id().unwrap()).await;
    assert_eq!(queued.parent_id, before);
    assert_eq!(
        conversation(&queued)[4..],
        ["slow", "re: slow", "queued", "re: queued"]
    );
}

#[tokio::test]
async fn the_latest_of_branches_that_grow_at_once_is_the_one_created_last() {
    let (agent, _) = gated(Concurrency::Reject, MemoryStore::new());
    let [first, mut left] = trunk(&agent).await;
    let mut right = say(&agent, &first, "aside").await;

    for _ in 0..3 {
        left = say(&agent, &left, "left").await;
        right = say(&agent, &right, "right").await;
    }

    let latest = agent.latest_snapshot("s").await.unwrap();
    assert_eq!(latest.snapshot_id, right);
    assert_eq!(conversation(&read(&agent, &left).await).len(), 10);
}

#[tokio::test]
async fn a_branch_is_not_in_the_way_of_a_background_run() {
    let (agent, gate) = gated(Concurrency::Reject, MemoryStore::new());
    let [first, second] = trunk(&agent).await;
    let mut chat = agent.chat().resume("s").open().await.unwrap();
    let run = chat.detach("slow").await.unwrap();

    say(&agent, &first, "aside").await;
    gate.add_permits(1);
    run.wait().await.unwrap();

    let over = read(&agent, run.snapshot_id()).await;
    assert_eq!(over.status, SnapshotStatus::Completed);
    assert_eq!(over.parent_id, Some(second));
}

#[tokio::test]
async fn a_turn_that_passes_over_a_failed_run_is_not_failed_by_a_branch_either() {
    let shared = MemoryStore::new();
    let (one, _) = gated(Concurrency::Reject, shared.clone());
    let [first, second] = trunk(&one).await;
    fail_a_run_after(&shared, &second).await;
    let gate = Arc::new(Semaphore::new(0));
    // Two handles on one store, behind different pointers, are like two processes.
    let lenient = || {
        let agent = waiting_at(&gate).resume_past_failures().store(shared.clone());
        agent.define().unwrap()
    };
    let (left, right) = (lenient(), lenient());
    let mut running = begin(&left, AgentInit::session("s")).await;
    let mut second_turn = begin(&right, AgentInit::session("s")).await;

    say(&one, &first, "aside").await;
    gate.add_permits(1);
    let kept = running.output().await;
    gate.add_permits(1);
    let refused = second_turn.output().await;

    let outcomes = [kept.is_ok(), refused.is_ok()];
    assert_eq!(
        outcomes.iter().filter(|kept| **kept).count(),
        1,
        "exactly one passes over the run: {outcomes:?}"
    );
    let children = shared.children(&Scope::default(), &second).await.unwrap();
    let completed = |child: &&Snapshot| child.status == SnapshotStatus::Completed;
    assert_eq!(children.iter().filter(completed).count(), 1);
}

async fn fail_a_run_after(store: &MemoryStore, parent: &SnapshotId) {
    let latest = store.get(&Scope::default(), parent, Detail::Whole).await;
    let mut run = latest.unwrap().unwrap();
    run.parent_id = Some(parent.clone());
    run.snapshot_id = "run".into();
    run.created_at += jiff::SignedDuration::from_micros(1);
    run.status = SnapshotStatus::Failed;
    // Nothing can be resumed from it.
    run.state = None;
    let put = Mutation::new(move |_| Ok(Some(run.clone())));
    let id = SnapshotId::from("run");
    let scope = Scope::default();
    let saved = store.save(&scope, Some(&id), Precondition::None, put).await;
    saved.unwrap();
}

#[tokio::test]
async fn a_linear_timeline_has_no_branches_and_refuses_what_was_overtaken() {
    let shared = MemoryStore::new();
    let gate = Arc::new(Semaphore::new(0));
    let linear = || {
        let agent = waiting_at(&gate).timeline(Timeline::Linear).store(shared.clone());
        agent.define().unwrap()
    };
    let (one, other) = (linear(), linear());
    let [first, second] = trunk(&one).await;
    let mut running = begin(&one, AgentInit::snapshot(second.clone())).await;

    say(&other, &first, "back").await;
    gate.add_permits(1);
    let error = running.output().await.unwrap_err();

    assert_eq!(error.status(), Status::Aborted, "{error}");
    let kept = snapshots(&shared, &"s".into()).await;
    assert_eq!(kept.len(), 2);
    assert!(kept.iter().all(|snapshot| snapshot.snapshot_id != second));
}
