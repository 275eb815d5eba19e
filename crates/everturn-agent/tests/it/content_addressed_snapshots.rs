//! Snapshots that are named after what they hold.

use everturn_agent::{
    Agent, AgentInit, AgentInput, Snapshot, SnapshotId, SnapshotIds, SnapshotPolicy, SnapshotStatus,
    Timeline, Turn,
};
use everturn_ai::Message;
use everturn_core::{HandlerResult, Status};
use serde_json::{Value, json};

use crate::support;
use crate::support::{FaultyStore, all_chunks, handling, said, snapshots};

/// Says what it hears; on `undo` forgets what was said after the first two messages, on `big` keeps a large
/// number.
async fn reply(turn: Turn) -> HandlerResult<()> {
    let heard = said(&turn);
    if heard == "undo" {
        turn.update_messages(|messages| *messages = messages.truncate_to(2));
    } else if let Some(number) = heard.strip_prefix("big ") {
        turn.update_messages(|messages| *messages = messages.truncate_to(0));
        turn.set_custom(serde_json::from_str(number)?);
    } else {
        let place = turn.snapshot_id().map_or("nowhere", SnapshotId::as_str);
        turn.add_message(Message::model(format!("re: {heard} at {place}")));
    }
    Ok(())
}

fn builder(store: &FaultyStore) -> everturn_agent::AgentBuilder<Value> {
    handling("parrot", reply)
        .store(store.clone())
        .snapshot_ids(SnapshotIds::ContentAddressed)
}

async fn run(agent: &Agent, init: AgentInit, inputs: &[&str]) -> everturn_agent::AgentOutput {
    let mut connection = agent.connect(init);
    for input in inputs {
        connection.send(*input).await.unwrap();
    }
    all_chunks(&mut connection).await;
    connection.output().await.unwrap()
}

async fn all(store: &FaultyStore) -> Vec<Snapshot> {
    snapshots(store, &"s".into()).await
}

#[tokio::test]
async fn every_snapshot_is_named_after_what_it_holds_and_can_be_checked() {
    let store = FaultyStore::default();
    let agent = builder(&store).define().unwrap();

    run(&agent, AgentInit::session("s"), &["one", "two"]).await;
    run(&agent, AgentInit::session("s"), &["three"]).await;

    let snapshots = all(&store).await;
    assert_eq!(snapshots.len(), 3);
    for snapshot in &snapshots {
        assert!(snapshot.verify().unwrap(), "{snapshot:?}");
    }
    let said: Vec<_> = support::texts(&snapshots[2].state.as_ref().unwrap().messages);
    assert_eq!(
        said[1], "re: one at nowhere",
        "a turn does not know the name of its row"
    );
    let mut forged = snapshots[1].clone();
    forged.state.as_mut().unwrap().custom = Some(json!("forged").into());
    assert!(!forged.verify().unwrap());
}

#[tokio::test]
async fn equal_states_are_one_snapshot_and_the_conversation_continues_from_it() {
    let store = FaultyStore::default();
    let agent = builder(&store).define().unwrap();

    let output = run(&agent, AgentInit::session("s"), &["one", "two", "undo"]).await;
    let saves = store.saves();
    let next = run(
        &agent,
        AgentInit::snapshot(output.snapshot_id.clone().unwrap()),
        &["other"],
    )
    .await;

    let snapshots = all(&store).await;
    assert_eq!(saves, 2, "the third turn came back to the state of the first");
    assert_eq!(output.snapshot_id.as_ref(), Some(&snapshots[0].snapshot_id));
    assert_eq!(snapshots.len(), 3);
    assert_eq!(next.snapshot_id.as_ref(), Some(&snapshots[2].snapshot_id));
    assert_eq!(snapshots[2].parent_id.as_ref(), Some(&snapshots[0].snapshot_id));
    assert_eq!((snapshots[2].index, snapshots[2].turn_index), (Some(2), Some(1)));
}

#[tokio::test]
async fn a_later_turn_of_the_same_invocation_continues_from_the_snapshot_it_came_back_to() {
    for (timeline, orphaned) in [(Timeline::Branching, false), (Timeline::Linear, true)] {
        let store = FaultyStore::default();
        let agent = builder(&store).timeline(timeline).define().unwrap();

        run(&agent, AgentInit::session("s"), &["one", "two", "undo", "other"]).await;

        let latest = agent.latest_snapshot("s").await.unwrap();
        let first = latest.parent_id.unwrap();
        assert_eq!(agent.get_snapshot(first).await.unwrap().index, Some(0));
        let abandoned = all(&store).await.len() == 2;
        assert_eq!(abandoned, orphaned, "{timeline:?}");
    }
}

#[tokio::test]
async fn the_end_of_an_invocation_that_changed_nothing_is_the_last_turn() {
    let store = FaultyStore::default();
    let agent = builder(&store)
        .snapshots(SnapshotPolicy::always())
        .define()
        .unwrap();

    let output = run(&agent, AgentInit::session("s"), &["one"]).await;

    assert_eq!(all(&store).await.len(), 1);
    assert_eq!(output.snapshot_ids.map(|ids| ids.len()), Some(1));
}

#[tokio::test]
async fn the_snapshot_of_a_background_run_is_named_before_it_has_a_state() {
    let store = FaultyStore::default();
    let agent = builder(&store).define().unwrap();

    let mut connection = agent.connect(AgentInit::session("s"));
    connection.send(AgentInput::from("one").detached()).await.unwrap();
    all_chunks(&mut connection).await;
    let id = connection.output().await.unwrap().snapshot_id.unwrap();
    agent.idle().await;

    let snapshot = agent.get_snapshot(id.clone()).await.unwrap();
    assert_eq!(snapshot.status, SnapshotStatus::Completed);
    assert!(!id.is_content_addressed());
    assert_eq!(
        snapshot.verify().unwrap_err().status(),
        Status::FailedPrecondition
    );
    let said = support::texts(&snapshot.state.unwrap().messages);
    assert_eq!(said[1], format!("re: one at {id}"));
}

#[tokio::test]
async fn numbers_that_a_name_cannot_tell_apart_are_refused_and_not_confused() {
    let store = FaultyStore::default();
    let agent = builder(&store).define().unwrap();

    let output = run(
        &agent,
        AgentInit::session("s"),
        &["big 9007199254740992", "big 9007199254740993"],
    )
    .await;

    let error = output.error.unwrap();
    assert_eq!(error.status, Some(Status::FailedPrecondition));
    assert!(error.message.contains("2^53"), "{error:?}");
    let snapshots = all(&store).await;
    assert_eq!(
        snapshots[0].state.as_ref().unwrap().custom.as_deref(),
        Some(&json!(9_007_199_254_740_992_u64))
    );
}
