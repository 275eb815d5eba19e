//! Snapshots, read through the agent and through its companion action.

use everturn_agent::store::{
    Detail, MemoryStore, Mutation, Precondition, Scope, SessionStore, SnapshotQuery,
};
use everturn_agent::{SNAPSHOT_NOT_FOUND, STORE_NOT_CONFIGURED, Snapshot, SnapshotStatus};
use everturn_core::{DynAction, Error, JsonCall, Status};
use serde_json::{Value, json};

use crate::support::{FaultyStore, replying, tell, tenants};

async fn call(action: &dyn DynAction, input: Value) -> everturn_core::Result<Value> {
    action.run_json(JsonCall::new(input)).await
}

#[tokio::test]
async fn a_snapshot_is_found_by_its_id_by_its_session_and_refused_to_another() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    let one = agent.chat().resume("s").run("one").await.unwrap();
    let two = agent.chat().resume("s").run("two").await.unwrap();
    let read = agent.snapshot_action().unwrap();
    let one = one.snapshot_id().unwrap().as_str();

    let by_id = call(read, json!({"snapshotId": one})).await.unwrap();
    let latest = call(read, json!({"sessionId": "s"})).await.unwrap();
    let both = call(read, json!({"snapshotId": one, "sessionId": "s"}))
        .await
        .unwrap();
    let stranger = call(read, json!({"snapshotId": one, "sessionId": "t"}))
        .await
        .unwrap_err();
    let missing = call(read, json!({"snapshotId": "gone"})).await.unwrap_err();
    let empty = call(read, json!({"sessionId": "t"})).await.unwrap_err();
    let neither = call(read, json!({})).await.unwrap_err();

    assert_eq!(by_id["snapshotId"], one);
    assert_eq!(both, by_id);
    assert_eq!(latest["snapshotId"], two.snapshot_id().unwrap().as_str());
    assert_eq!(latest["state"]["sessionId"], "s");
    assert_eq!(latest["parentId"], one);
    assert_eq!(stranger.status(), Status::InvalidArgument);
    assert_eq!(neither.status(), Status::InvalidArgument);
    for error in [missing, empty] {
        assert_eq!(error.status(), Status::NotFound);
        assert!(error.is(SNAPSHOT_NOT_FOUND) && error.public_message().is_some());
    }
}

#[tokio::test]
async fn fields_of_other_versions_come_out_again() {
    let store = MemoryStore::new();
    let snapshot: Snapshot = serde_json::from_value(json!({
        "snapshotId": "old", "sessionId": "s", "createdAt": "2026-01-02T03:04:05Z", "shelf": 3,
        "state": {"messages": [], "novelty": true},
    }))
    .unwrap();
    let mutation = Mutation::new(move |_| Ok(Some(snapshot.clone())));
    store
        .save(
            &Scope::default(),
            Some(&"old".into()),
            Precondition::None,
            mutation,
        )
        .await
        .unwrap();
    let agent = replying("chef").store(store).define().unwrap();

    let read = call(agent.snapshot_action().unwrap(), json!({"snapshotId": "old"}))
        .await
        .unwrap();

    assert_eq!(
        (&read["shelf"], &read["state"]["novelty"]),
        (&json!(3), &json!(true))
    );
    assert_eq!(
        (&read["status"], &read["updatedAt"]),
        (&json!("completed"), &read["createdAt"])
    );
}

#[tokio::test]
async fn metadata_is_read_without_asking_the_store_for_states_or_the_transform() {
    let store = FaultyStore::default();
    let agent = replying("chef")
        .store(store.clone())
        .state_transform(|_, _| Err(Error::internal("the transform was run").into()))
        .define()
        .unwrap();
    let reply = agent.chat().resume("s").run("one").await.unwrap();
    let before = store.whole_reads();
    let (read, id) = (
        agent.snapshot_action().unwrap(),
        reply.snapshot_id().unwrap().as_str(),
    );

    let by_id = call(read, json!({"snapshotId": id, "metadataOnly": true}))
        .await
        .unwrap();
    let latest = call(read, json!({"sessionId": "s", "metadataOnly": true}))
        .await
        .unwrap();
    let whole = call(read, json!({"sessionId": "s", "metadataOnly": false})).await;

    assert_eq!((&by_id["snapshotId"], by_id.get("state")), (&json!(id), None));
    assert_eq!(latest, by_id);
    assert!(whole.unwrap_err().message().contains("the transform was run"));
    assert_eq!(store.whole_reads() - before, 1);
}

#[tokio::test]
async fn a_run_that_another_runtime_is_stopping_is_read_listed_and_left_alone() {
    let store = MemoryStore::new();
    let row: Snapshot = serde_json::from_value(json!({
        "snapshotId": "run", "sessionId": "s", "createdAt": "2026-01-02T03:04:05Z", "status": "aborting",
    }))
    .unwrap();
    let written = row.clone();
    let mutation = Mutation::new(move |_| Ok(Some(written.clone())));
    let (scope, id) = (Scope::default(), "run".into());
    store
        .save(&scope, Some(&id), Precondition::None, mutation)
        .await
        .unwrap();
    let agent = replying("chef").store(store.clone()).define().unwrap();

    let read = agent.get_snapshot("run").await.unwrap();
    let listed = agent
        .archive()
        .unwrap()
        .list(&SnapshotQuery::of("s".into()))
        .await
        .unwrap();
    let stopped = agent.abort("run").await.unwrap().unwrap();
    let resumed = agent.chat().resume("s").run("go on").await.unwrap_err();
    let mut exported = Vec::new();
    agent.archive().unwrap().export("s", &mut exported).await.unwrap();

    assert_eq!(read.status, SnapshotStatus::Aborting);
    assert_eq!(listed.items[0].status, SnapshotStatus::Aborting);
    assert_eq!(
        (stopped.previous, stopped.status),
        (SnapshotStatus::Aborting, SnapshotStatus::Aborting)
    );
    assert_eq!(resumed.status(), Status::FailedPrecondition);
    assert!(String::from_utf8(exported).unwrap().contains("aborting"));
    assert_eq!(store.get(&scope, &id, Detail::Whole).await.unwrap(), Some(row));
}

#[tokio::test]
async fn without_a_store_there_is_nothing_to_read_and_no_companion() {
    let agent = replying("chef").define().unwrap();

    let read = agent.get_snapshot("any").await.unwrap_err();
    let aborted = agent.abort("any").await.unwrap_err();

    assert!(agent.snapshot_action().is_none() && agent.abort_action().is_none());
    for error in [read, aborted] {
        assert_eq!(error.status(), Status::FailedPrecondition);
        assert!(error.is(STORE_NOT_CONFIGURED));
    }
}

#[tokio::test]
async fn an_abort_does_not_change_a_finished_run_and_names_a_missing_one() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    let reply = agent.run_text("one").await.unwrap();
    let id = reply.snapshot_id().unwrap();
    let before = agent.get_snapshot(id.clone()).await.unwrap();

    let over = agent.abort(id.clone()).await.unwrap().unwrap();
    let typed = agent.abort("gone").await.unwrap();
    let empty = agent.abort("").await.unwrap_err();
    let action = agent.abort_action().unwrap();
    let wire = call(action, json!({"snapshotId": id.as_str()})).await.unwrap();
    let missing = call(action, json!({"snapshotId": "gone"})).await.unwrap_err();

    assert_eq!(
        (over.previous, over.status),
        (SnapshotStatus::Completed, SnapshotStatus::Completed)
    );
    assert_eq!(typed, None);
    assert_eq!(empty.status(), Status::InvalidArgument);
    assert_eq!(wire, json!({"snapshotId": id.as_str(), "status": "completed"}));
    assert_eq!(missing.status(), Status::NotFound);
    assert_eq!(agent.get_snapshot(id.clone()).await.unwrap(), before);
}

#[tokio::test]
async fn tenants_do_not_see_each_other() {
    let (agent, ann, bob) = tenants(&MemoryStore::new());

    let reply = tell(&agent, &ann, "s", "one").await;
    let stolen = agent
        .chat()
        .snapshot(reply.snapshot_id().unwrap().clone())
        .context(bob.clone())
        .run("two")
        .await;
    let own = ann.scope(async { agent.latest_snapshot("s").await }).await;
    let other = bob.scope(async { agent.latest_snapshot("s").await }).await;

    assert_eq!(stolen.unwrap_err().status(), Status::NotFound);
    assert_eq!(own.unwrap().snapshot_id, *reply.snapshot_id().unwrap());
    assert_eq!(other.unwrap_err().status(), Status::NotFound);
}
