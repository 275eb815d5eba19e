//! Conversations a second time.

use everturn_agent::archive::{Archive, FORKED_FROM};
use everturn_agent::store::{MemoryStore, Scope};
use everturn_agent::{Agent, SnapshotId, SnapshotIds, SnapshotStatus, Timeline};
use everturn_core::Status;
use serde_json::json;

use crate::support::{FaultyStore, replying, snapshots, texts};

async fn talk(agent: &Agent, session: &str, said: &[&str]) -> Vec<SnapshotId> {
    let mut ids = Vec::new();
    for text in said {
        let reply = agent.chat().resume(session).run(*text).await.unwrap();
        ids.push(reply.snapshot_id().unwrap().clone());
    }
    ids
}

#[tokio::test]
async fn a_fork_continues_independently_of_its_origin() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    let line = talk(&agent, "s", &["one", "two"]).await;
    let archive = agent.archive().unwrap();
    archive.label(line[0].clone(), "good").await.unwrap();

    let fork = archive.fork(line[0].clone(), "t").await.unwrap();
    agent.chat().resume("t").run("three").await.unwrap();

    assert_eq!(fork.session_id, Some("t".into()));
    assert_ne!(fork.snapshot_id, line[0]);
    assert_eq!(
        (&fork.parent_id, fork.index, fork.turn_index),
        (&None, Some(0), Some(0))
    );
    assert!(fork.labels.is_empty());
    assert_eq!(
        fork.extra[FORKED_FROM],
        json!({"sessionId": "s", "snapshotId": line[0]})
    );
    let forked = archive.latest("t").await.unwrap();
    assert_eq!((forked.index, forked.turn_index), (Some(1), Some(1)));
    let state = forked.state.unwrap();
    assert_eq!(texts(&state.messages), ["one", "re: one", "three", "re: three"]);
    assert_eq!(state.session_id, Some("t".into()));
    assert_eq!(archive.tree("s").await.unwrap().snapshots().len(), 2);
}

#[tokio::test]
async fn a_fork_needs_a_completed_snapshot_and_a_free_name() {
    let store = MemoryStore::new();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    let line = talk(&agent, "s", &["one"]).await;
    let mut run = agent.chat().resume("run").open().await.unwrap();
    let task = run.detach("work").await.unwrap();
    task.wait().await.unwrap();
    let archive = agent.archive().unwrap();

    let taken = archive.fork(line[0].clone(), "run").await.unwrap_err();
    let nameless = archive.fork(line[0].clone(), "").await.unwrap_err();

    assert_eq!(taken.status(), Status::AlreadyExists);
    assert_eq!(nameless.status(), Status::InvalidArgument);
    assert_eq!(snapshots(&store, &"run".into()).await.len(), 1);
}

#[tokio::test]
async fn an_edited_state_follows_its_snapshot_in_the_same_session() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    let line = talk(&agent, "s", &["one", "two"]).await;
    let archive = agent.archive().unwrap();

    let branch = archive
        .fork_with_custom(line[0].clone(), "s", json!({"pantry": ["leeks"]}))
        .await
        .unwrap();
    let reply = agent.chat().resume("s").run("three").await.unwrap();
    let next = archive
        .fork_with_custom(reply.snapshot_id().unwrap().clone(), "s", json!({"pantry": []}))
        .await
        .unwrap();

    assert_eq!(
        (&branch.parent_id, branch.index, branch.turn_index),
        (&Some(line[0].clone()), Some(2), Some(0))
    );
    assert!(!branch.extra.contains_key(FORKED_FROM));
    let made = archive.get(reply.snapshot_id().unwrap().clone()).await.unwrap();
    assert_eq!(made.parent_id, Some(branch.snapshot_id));
    let state = made.state.unwrap();
    assert_eq!(texts(&state.messages), ["one", "re: one", "three", "re: three"]);
    assert_eq!(*state.custom.unwrap(), json!({"pantry": ["leeks"]}));
    assert_eq!(archive.latest("s").await.unwrap().snapshot_id, next.snapshot_id);
    assert_eq!(next.parent_id, Some(made.snapshot_id));
    // Existing snapshots stay unchanged.
    let origin = archive.get(line[0].clone()).await.unwrap();
    assert_eq!(origin.state.unwrap().custom, None);
    assert_eq!(archive.tree("s").await.unwrap().snapshots().len(), 5);
}

#[tokio::test]
async fn an_edited_state_does_not_branch_a_linear_session() {
    let agent = replying("chef")
        .store(MemoryStore::new())
        .timeline(Timeline::Linear)
        .define()
        .unwrap();
    let line = talk(&agent, "s", &["one", "two"]).await;
    let archive = agent.archive().unwrap();

    let refused = archive.fork_with_custom(line[0].clone(), "s", json!(1)).await;
    let followed = archive.fork_with_custom(line[1].clone(), "s", json!(2)).await;

    assert_eq!(refused.unwrap_err().status(), Status::FailedPrecondition);
    assert_eq!(followed.unwrap().parent_id, Some(line[1].clone()));
}

#[tokio::test]
async fn a_content_addressed_session_names_edited_states_after_their_content() {
    let agent = replying("chef")
        .store(MemoryStore::new())
        .snapshot_ids(SnapshotIds::ContentAddressed)
        .define()
        .unwrap();
    let line = talk(&agent, "s", &["one"]).await;
    let archive = agent.archive().unwrap();

    let edited = archive
        .fork_with_custom(line[0].clone(), "s", json!(1))
        .await
        .unwrap();
    let again = archive
        .fork_with_custom(line[0].clone(), "s", json!(1))
        .await
        .unwrap_err();

    assert!(edited.verify().unwrap());
    assert_eq!(again.status(), Status::AlreadyExists);
}

#[tokio::test]
async fn a_copy_has_the_shape_and_the_words_of_the_original_under_names_of_its_own() {
    let store = MemoryStore::new();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    let line = talk(&agent, "s", &["one", "two", "three"]).await;
    agent.chat().snapshot(line[0].clone()).run("other").await.unwrap();
    let archive = agent.archive().unwrap();
    archive.label(line[1].clone(), "good").await.unwrap();
    archive.delete_snapshot(line[1].clone()).await.unwrap();

    let count = archive.copy("s", "t").await.unwrap();

    let (originals, copies) = (
        snapshots(&store, &"s".into()).await,
        snapshots(&store, &"t".into()).await,
    );
    assert_eq!((count, copies.len()), (3, 3));
    for (original, copy) in originals.iter().zip(&copies) {
        assert_ne!(original.snapshot_id, copy.snapshot_id);
        assert_eq!(
            (
                original.created_at,
                original.updated_at,
                original.index,
                &original.labels
            ),
            (copy.created_at, copy.updated_at, copy.index, &copy.labels)
        );
        let (original, copy) = (original.state.as_ref().unwrap(), copy.state.as_ref().unwrap());
        assert_eq!(original.messages, copy.messages);
        assert_eq!(
            original.messages.shared_prefix(&copy.messages),
            original.messages.len()
        );
        assert_eq!(copy.session_id, Some("t".into()));
    }
    assert_eq!(copies[2].parent_id.as_ref(), Some(&copies[0].snapshot_id));
    let orphan = copies[1].parent_id.as_ref().unwrap();
    assert!(
        orphan != &line[1],
        "a copy does not hang on what the original hung on"
    );
    assert_eq!(archive.tree("t").await.unwrap().roots().count(), 2);
}

#[tokio::test]
async fn a_copy_into_an_existing_session_is_refused() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    talk(&agent, "s", &["one"]).await;
    talk(&agent, "t", &["two"]).await;

    let error = agent.archive().unwrap().copy("s", "t").await.unwrap_err();

    assert_eq!(error.status(), Status::AlreadyExists);
}

#[tokio::test]
async fn a_failed_copy_leaves_no_snapshot() {
    let store = FaultyStore::default();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    talk(&agent, "s", &["one", "two"]).await;
    store.fail_saves(true);

    let error = agent.archive().unwrap().copy("s", "t").await.unwrap_err();

    assert_eq!(error.status(), Status::ResourceExhausted);
    let archive = Archive::of(store, Scope::default());
    assert_eq!(archive.tree("t").await.unwrap_err().status(), Status::NotFound);
    assert_eq!(
        archive.latest("s").await.unwrap().status,
        SnapshotStatus::Completed
    );
}
