//! The snapshots of an invocation under each policy, and their chunks.

use SnapshotEvent::{InvocationEnd, RoundEnd, TurnEnd};
use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_agent::{
    Agent, AgentInit, AgentOutput, AgentSession, AgentStreamChunk, SessionId, Snapshot, SnapshotEvent,
    SnapshotPolicy, custom_agent,
};
use everturn_ai::{NoInput, Tool, ToolContext};
use everturn_core::Status;
use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::prompt_support::{answering, invoke, json};
use crate::support::{FaultyStore, snapshots as rows};

/// Asks a model that uses a tool once; changes its custom state after its turns on request.
fn cook(policy: Option<SnapshotPolicy>, changes_at_the_end: bool, store: FaultyStore) -> Agent<Value> {
    let (registry, _model) = answering([Reply::tool("oven", json!({})), "Done.".into()]);
    let agent = custom_agent(&registry, "cook", move |session: AgentSession| async move {
        session
            .run(|turn| async move {
                let oven = Tool::new("oven", "Heats.", |_: NoInput, _: ToolContext| async { Ok(200) });
                let reply = turn
                    .generate()
                    .history()
                    .with(|generate| generate.tool(oven))
                    .await?;
                Ok(reply.finish_reason)
            })
            .await?;
        if changes_at_the_end {
            session.set_custom(json!("clean"));
        }
        Ok(session.result())
    })
    .store(store);
    match policy {
        Some(policy) => agent.snapshots(policy),
        None => agent,
    }
    .define()
    .unwrap()
}

async fn run(
    policy: Option<SnapshotPolicy>,
    changes_at_the_end: bool,
) -> (Vec<Snapshot>, Vec<AgentStreamChunk>, AgentOutput) {
    let store = FaultyStore::default();
    let agent = cook(policy, changes_at_the_end, store.clone());
    let (chunks, output) = invoke(agent.connect(AgentInit::session("s")), "bake").await;
    assert_eq!(output.error, None);
    (snapshots(&store, &"s".into()).await, chunks, output)
}

async fn snapshots(store: &dyn SessionStore, session: &SessionId) -> Vec<Snapshot> {
    let rows = rows(store, session).await.into_iter();
    rows.filter(|row| !row.is_head()).collect()
}

fn events(snapshots: &[Snapshot]) -> Vec<SnapshotEvent> {
    snapshots.iter().map(|snapshot| snapshot.event.unwrap()).collect()
}

#[tokio::test]
async fn every_policy_leaves_the_snapshots_it_names() {
    let all = [TurnEnd, RoundEnd, InvocationEnd];
    let table: [(Option<SnapshotPolicy>, bool, &[SnapshotEvent]); 12] = [
        (None, true, &[TurnEnd]),
        (Some(SnapshotPolicy::default()), true, &[TurnEnd]),
        (
            Some(SnapshotPolicy::always()),
            false,
            &[RoundEnd, TurnEnd, InvocationEnd],
        ),
        (Some(SnapshotPolicy::never()), true, &[]),
        (Some(SnapshotPolicy::on([TurnEnd])), true, &[TurnEnd]),
        (Some(SnapshotPolicy::on([RoundEnd])), true, &[RoundEnd]),
        (Some(SnapshotPolicy::on([InvocationEnd])), false, &[InvocationEnd]),
        (Some(SnapshotPolicy::on_change(all)), false, &[RoundEnd, TurnEnd]),
        (
            Some(SnapshotPolicy::on_change(all)),
            true,
            &[RoundEnd, TurnEnd, InvocationEnd],
        ),
        (
            Some(SnapshotPolicy::on_change([InvocationEnd])),
            false,
            &[InvocationEnd],
        ),
        (
            Some(SnapshotPolicy::when(|moment| moment.event != TurnEnd)),
            false,
            &[RoundEnd, InvocationEnd],
        ),
        (
            Some(SnapshotPolicy::when(|moment| moment.index == 0)),
            false,
            &[RoundEnd],
        ),
    ];

    for (policy, changes, expected) in table {
        let (snapshots, _, _) = run(policy.clone(), changes).await;

        assert_eq!(
            events(&snapshots),
            expected,
            "{policy:?}, changed at the end: {changes}"
        );
    }
}

#[tokio::test]
async fn snapshots_of_all_events_form_one_line_with_right_numbers() {
    let (snapshots, _, output) = run(Some(SnapshotPolicy::always()), true).await;

    let places: Vec<_> = snapshots
        .iter()
        .map(|snapshot| (snapshot.index, snapshot.turn_index))
        .collect();
    assert_eq!(
        places,
        [(Some(0), Some(0)), (Some(1), Some(0)), (Some(2), Some(0))]
    );
    assert_eq!(snapshots[0].parent_id, None);
    assert_eq!(snapshots[1].parent_id.as_ref(), Some(&snapshots[0].snapshot_id));
    assert_eq!(snapshots[2].parent_id.as_ref(), Some(&snapshots[1].snapshot_id));
    let lengths: Vec<_> = snapshots
        .iter()
        .map(|snapshot| snapshot.state.as_ref().unwrap().messages.len())
        .collect();
    assert_eq!(lengths, [3, 4, 4]);
    assert_eq!(output.snapshot_id.as_ref(), Some(&snapshots[2].snapshot_id));
    let (one, two) = (
        snapshots[0].state.as_ref().unwrap(),
        snapshots[1].state.as_ref().unwrap(),
    );
    assert_eq!(
        two.messages.shared_prefix(&one.messages),
        3,
        "said once, kept once"
    );
}

#[tokio::test]
async fn a_turn_that_only_left_a_snapshot_from_its_middle_counts() {
    let store = FaultyStore::default();
    let policy = SnapshotPolicy::on([RoundEnd, TurnEnd]);
    let first = cook(Some(SnapshotPolicy::on([RoundEnd])), false, store.clone());
    invoke(first.connect(AgentInit::session("s")), "bake").await;
    let second = cook(Some(policy), false, store.clone());

    invoke(second.connect(AgentInit::session("s")), "again").await;

    let snapshots = snapshots(&store, &"s".into()).await;
    let turns: Vec<_> = snapshots
        .iter()
        .map(|snapshot| snapshot.turn_index.unwrap())
        .collect();
    assert_eq!(events(&snapshots), [RoundEnd, RoundEnd, TurnEnd]);
    assert_eq!(turns, [0, 1, 1]);
}

#[tokio::test]
async fn clients_are_told_of_every_snapshot_in_order() {
    let (snapshots, chunks, output) = run(Some(SnapshotPolicy::always()), false).await;

    let ids: Vec<_> = snapshots
        .iter()
        .map(|snapshot| snapshot.snapshot_id.clone())
        .collect();
    let told: Vec<Value> = chunks
        .iter()
        .filter(|chunk| chunk.snapshot_created.is_some())
        .map(json)
        .collect();
    let expected: Vec<Value> = ids
        .iter()
        .zip(["toolIterationEnd", "turnEnd", "invocationEnd"])
        .map(|(id, event)| json!({"snapshotCreated": {"snapshotId": id, "event": event}}))
        .collect();
    assert_eq!(told, expected);
    assert_eq!(output.snapshot_ids, Some(ids));
    let created = chunks.iter().position(|chunk| {
        chunk
            .snapshot_created
            .as_ref()
            .is_some_and(|snapshot| snapshot.event == TurnEnd)
    });
    let ended = chunks.iter().position(|chunk| chunk.turn_end.is_some());
    assert!(
        created < ended,
        "a snapshot is announced before the turn that it holds is over"
    );
}

#[tokio::test]
async fn the_default_policy_says_nothing_new_on_the_wire() {
    for policy in [None, Some(SnapshotPolicy::default())] {
        let (_, chunks, output) = run(policy, true).await;

        assert!(chunks.iter().all(|chunk| chunk.snapshot_created.is_none()));
        assert!(json(&output).get("snapshotIds").is_none());
    }
}

#[tokio::test]
async fn an_end_that_cannot_be_saved_is_a_failed_output() {
    let store = FaultyStore::default();
    let broken = store.clone();
    let registry = everturn_core::Registry::new();
    let agent = custom_agent(&registry, "cook", move |session: AgentSession| {
        let broken = broken.clone();
        async move {
            session.run(|_| async { Ok(()) }).await?;
            broken.fail_saves(true);
            Ok(session.result())
        }
    })
    .store(store)
    .snapshots(SnapshotPolicy::always())
    .define()
    .unwrap();

    let (_, output) = invoke(agent.connect(AgentInit::session("s")), "bake").await;

    let error = output.error.unwrap();
    assert_eq!(error.status, Some(Status::ResourceExhausted));
    assert!(error.message.contains("the end of the invocation"), "{error:?}");
    assert_eq!(output.snapshot_ids.unwrap().len(), 1);
}

#[tokio::test]
async fn an_invocation_without_turns_can_be_a_snapshot() {
    let store = MemoryStore::new();
    let registry = everturn_core::Registry::new();
    let agent = custom_agent(&registry, "idle", |session: AgentSession| async move {
        session.set_custom(json!("set up"));
        Ok(session.result())
    })
    .store(store.clone())
    .snapshots(SnapshotPolicy::always())
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::session("s"));
    connection.close();
    let output = connection.output().await.unwrap();

    let snapshots = snapshots(&store, &"s".into()).await;
    assert_eq!(events(&snapshots), [InvocationEnd]);
    assert_eq!((snapshots[0].index, snapshots[0].turn_index), (Some(0), None));
    assert_eq!(output.snapshot_id.as_ref(), Some(&snapshots[0].snapshot_id));
}
