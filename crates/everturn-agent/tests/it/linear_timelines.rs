//! Timelines without branches: who goes back leaves behind what came after, and can have it again.

use everturn_agent::store::{Order, Scope, SessionStore, SnapshotQuery, TIP_MOVED};
use everturn_agent::{
    Agent, AgentInit, AgentInput, AgentOutput, AgentSession, Concurrency, SnapshotId, SnapshotIds, Timeline,
    custom_agent,
};
use everturn_core::{Registry, Result, Status};
use serde_json::Value;

use crate::support;
use crate::support::{FaultyStore, Held, all_chunks, replying, texts};

fn linear(store: &FaultyStore) -> Agent<Value> {
    replying("parrot")
        .store(store.clone())
        .timeline(Timeline::Linear)
        .define()
        .unwrap()
}

/// The same, where a turn may come to a snapshot that is there.
fn naming_by_content(store: &FaultyStore) -> Agent<Value> {
    replying("parrot")
        .store(store.clone())
        .timeline(Timeline::Linear)
        .snapshot_ids(SnapshotIds::ContentAddressed)
        .define()
        .unwrap()
}

async fn invoke(agent: &Agent, init: AgentInit, input: impl Into<AgentInput>) -> Result<AgentOutput> {
    let mut connection = agent.connect(init);
    let _ = connection.send(input).await;
    all_chunks(&mut connection).await;
    connection.output().await
}

async fn turn(agent: &Agent, init: AgentInit, text: &str) -> SnapshotId {
    let output = invoke(agent, init, text).await.unwrap();
    assert_eq!(output.error, None);
    output.snapshot_id.unwrap()
}

/// Turns `0` to `count - 1` of session `s`.
async fn turns(agent: &Agent, count: usize) -> Vec<SnapshotId> {
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(turn(agent, AgentInit::session("s"), &number.to_string()).await);
    }
    ids
}

/// The session's snapshots, oldest first: those that are listed, or those that are not.
async fn listed(store: &FaultyStore, orphaned: bool) -> Vec<SnapshotId> {
    let mut query = SnapshotQuery::of("s".into());
    query.order = Order::Oldest;
    query.orphaned = orphaned;
    let snapshots = store.list(&Scope::default(), &query).await.unwrap().items;
    snapshots
        .into_iter()
        .filter(|snapshot| snapshot.orphaned == orphaned)
        .map(|snapshot| snapshot.snapshot_id)
        .collect()
}

fn pick(ids: &[SnapshotId], indexes: &[usize]) -> Vec<SnapshotId> {
    indexes.iter().map(|index| ids[*index].clone()).collect()
}

#[tokio::test]
async fn a_rewind_supersedes_the_later_snapshots_and_keeps_them() {
    let store = FaultyStore::default();
    let agent = linear(&store);
    let mut ids = turns(&agent, 4).await;

    ids.push(turn(&agent, AgentInit::snapshot(ids[1].clone()), "other").await);

    assert_eq!(listed(&store, false).await, pick(&ids, &[0, 1, 4]));
    assert_eq!(listed(&store, true).await, pick(&ids, &[2, 3]));
    let latest = agent.latest_snapshot("s").await.unwrap();
    assert_eq!((latest.index, latest.turn_index), (Some(4), Some(2)));
    assert_eq!(
        texts(&latest.state.unwrap().messages),
        ["0", "re: 0", "1", "re: 1", "other", "re: other"]
    );
}

#[tokio::test]
async fn orphaned_snapshots_are_recovered_by_resuming_one() {
    let store = FaultyStore::default();
    let agent = linear(&store);
    let mut ids = turns(&agent, 4).await;
    ids.push(turn(&agent, AgentInit::snapshot(ids[1].clone()), "other").await);

    ids.push(turn(&agent, AgentInit::snapshot(ids[2].clone()), "back").await);

    assert_eq!(listed(&store, false).await, pick(&ids, &[0, 1, 2, 5]));
    assert_eq!(listed(&store, true).await, pick(&ids, &[3, 4]));
    let latest = agent.latest_snapshot("s").await.unwrap();
    assert_eq!(latest.parent_id.as_ref(), Some(&ids[2]));

    ids.push(turn(&agent, AgentInit::snapshot(ids[4].clone()), "forth").await);

    assert_eq!(listed(&store, false).await, pick(&ids, &[0, 1, 4, 6]));
    assert_eq!(listed(&store, true).await, pick(&ids, &[2, 3, 5]));
}

#[tokio::test]
async fn a_turn_that_reaches_an_existing_snapshot_supersedes_its_descendants() {
    let store = FaultyStore::default();
    let agent = naming_by_content(&store);
    let mut ids = turns(&agent, 4).await;

    let again = turn(&agent, AgentInit::snapshot(ids[0].clone()), "1").await;

    assert_eq!(again, ids[1]);
    assert_eq!(listed(&store, false).await, pick(&ids, &[0, 1]));
    assert_eq!(listed(&store, true).await, pick(&ids, &[2, 3]));
    assert_eq!(agent.latest_snapshot("s").await.unwrap().snapshot_id, ids[1]);

    let recovered = turn(&agent, AgentInit::session("s"), "2").await;

    assert_eq!(recovered, ids[2]);
    assert_eq!(listed(&store, false).await, pick(&ids, &[0, 1, 2]));
    ids.push(turn(&agent, AgentInit::session("s"), "other").await);
    assert_eq!(listed(&store, false).await, pick(&ids, &[0, 1, 2, 4]));
    assert_eq!(listed(&store, true).await, pick(&ids, &[3]));
}

#[tokio::test]
async fn a_turn_that_reaches_an_existing_snapshot_does_not_supersede_another_processs_snapshots() {
    let store = FaultyStore::default();
    let agent = naming_by_content(&store);
    let mut ids = turns(&agent, 4).await;
    let looking = store.hold_next_save(Held::Before);
    let again = tokio::spawn(async move {
        let back = AgentInit::snapshot(ids[0].clone());
        (invoke(&agent, back, "1").await, ids)
    });
    looking.reached().await;
    let deciding = store.hold_next_save(Held::Before);
    looking.open();
    deciding.reached().await;

    let elsewhere = naming_by_content(&store.elsewhere());
    let meanwhile = turn(&elsewhere, AgentInit::session("s"), "meanwhile").await;
    deciding.open();

    let outcome;
    (outcome, ids) = again.await.unwrap();
    ids.push(meanwhile);
    let error = outcome.unwrap_err();
    assert_eq!(error.status(), Status::Aborted);
    assert_eq!(listed(&store, false).await, ids);
}

#[tokio::test]
async fn nothing_changes_before_the_first_snapshot_after_the_resumption() {
    let store = FaultyStore::default();
    let agent = linear(&store);
    let ids = turns(&agent, 3).await;

    let failed = invoke(&agent, AgentInit::snapshot(ids[0].clone()), "boom")
        .await
        .unwrap();

    assert!(failed.error.is_some());
    assert_eq!(listed(&store, false).await, ids);
    assert_eq!(agent.latest_snapshot("s").await.unwrap().snapshot_id, ids[2]);
}

#[tokio::test]
async fn resuming_the_tip_orphans_no_snapshot() {
    let store = FaultyStore::default();
    let agent = linear(&store);
    let mut ids = turns(&agent, 2).await;

    ids.push(turn(&agent, AgentInit::snapshot(ids[1].clone()), "on").await);

    assert_eq!(listed(&store, false).await, ids);
}

#[tokio::test]
async fn a_background_run_can_rewind() {
    let store = FaultyStore::default();
    let agent = linear(&store);
    let ids = turns(&agent, 3).await;

    let init = AgentInit::snapshot(ids[0].clone());
    let output = invoke(&agent, init, AgentInput::from("plan").detached())
        .await
        .unwrap();
    agent.idle().await;

    let run = output.snapshot_id.unwrap();
    assert_eq!(listed(&store, false).await, [ids[0].clone(), run]);
    assert_eq!(listed(&store, true).await, ids[1..]);
}

/// An agent that signals when it has opened a session.
fn announcing(store: &FaultyStore, concurrency: Concurrency) -> Agent<Value> {
    custom_agent(&Registry::new(), "parrot", |session: AgentSession| async move {
        session.send_status("open").await?;
        session.run(support::reply).await?;
        Ok(session.result())
    })
    .store(store.clone())
    .timeline(Timeline::Linear)
    .concurrency(concurrency)
    .define()
    .unwrap()
}

/// Opens a rewind to the first of three turns; before its first turn, another client takes the fourth.
async fn overtaken(store: &FaultyStore, concurrency: Concurrency) -> (Vec<SnapshotId>, Result<AgentOutput>) {
    let agent = announcing(store, concurrency);
    let mut ids = turns(&agent, 3).await;
    let mut rewinding = agent.connect(AgentInit::snapshot(ids[0].clone()));
    assert!(rewinding.next().await.unwrap().status.is_some());
    ids.push(turn(&agent, AgentInit::session("s"), "meanwhile").await);

    rewinding.send("late").await.unwrap();
    all_chunks(&mut rewinding).await;
    (ids, rewinding.output().await)
}

#[tokio::test]
async fn a_rewind_fails_if_another_turn_was_committed_meanwhile() {
    let store = FaultyStore::default();

    let (ids, outcome) = overtaken(&store, Concurrency::Reject).await;

    let error = outcome.unwrap_err();
    assert_eq!(error.status(), Status::Aborted);
    assert!(error.is(TIP_MOVED), "{error}");
    assert_eq!(listed(&store, false).await, ids);
}

#[tokio::test]
async fn a_queued_rewind_returns_to_the_requested_snapshot() {
    let store = FaultyStore::default();

    let (ids, outcome) = overtaken(&store, Concurrency::Queue).await;

    let late = outcome.unwrap().snapshot_id.unwrap();
    assert_eq!(listed(&store, false).await, [ids[0].clone(), late]);
    assert_eq!(listed(&store, true).await, ids[1..]);
}

#[tokio::test]
async fn a_linear_timeline_cannot_be_set_to_fork() {
    let refused = replying("parrot")
        .store(FaultyStore::default())
        .timeline(Timeline::Linear)
        .concurrency(Concurrency::Fork)
        .build();

    assert_eq!(refused.unwrap_err().status(), Status::InvalidArgument);
}

#[tokio::test]
async fn branching_timelines_orphan_no_snapshot() {
    let store = FaultyStore::default();
    let agent = replying("parrot").store(store.clone()).define().unwrap();
    let mut ids = turns(&agent, 3).await;

    ids.push(turn(&agent, AgentInit::snapshot(ids[0].clone()), "other").await);

    assert_eq!(listed(&store, false).await, ids);
}
