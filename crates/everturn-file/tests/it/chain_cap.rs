//! A cap on the length of a line of ancestors deletes the oldest.

use everturn_agent::store::{Detail, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::Status;
use everturn_file::FileStore;
use jiff::Timestamp;

async fn save(store: &FileStore, id: &str, parent: Option<&str>, seconds: i64) {
    let created_at = Timestamp::from_second(seconds).unwrap();
    let mut row = Snapshot::new(SnapshotId::from(id), SessionId::from("s"), created_at);
    row.parent_id = parent.map(SnapshotId::from);
    let mutation = Mutation::new(move |_| Ok(Some(row.clone())));
    store
        .save(&Scope::default(), Some(&id.into()), Precondition::None, mutation)
        .await
        .unwrap();
}

async fn is_there(store: &FileStore, id: &str) -> bool {
    store
        .get(&Scope::default(), &id.into(), Detail::Metadata)
        .await
        .unwrap()
        .is_some()
}

#[tokio::test]
async fn the_newest_of_a_line_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::options(folder.path())
        .max_chain(2)
        .open()
        .await
        .unwrap();

    save(&store, "a", None, 1).await;
    save(&store, "b", Some("a"), 2).await;
    save(&store, "c", Some("b"), 3).await;

    assert!(!is_there(&store, "a").await);
    assert!(is_there(&store, "b").await && is_there(&store, "c").await);
}

#[tokio::test]
async fn a_line_that_bites_its_tail_does_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::options(folder.path())
        .max_chain(1)
        .open()
        .await
        .unwrap();

    save(&store, "a", Some("b"), 1).await;
    save(&store, "b", Some("a"), 2).await;
    save(&store, "self", Some("self"), 3).await;

    assert!(is_there(&store, "b").await && is_there(&store, "self").await);
}

#[tokio::test]
async fn a_cap_of_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();

    let error = FileStore::options(folder.path())
        .max_chain(0)
        .open()
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}
