//! Deleting for good.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use everturn_agent::archive::Tenants;
use everturn_agent::store::{MemoryStore, SessionQuery};
use everturn_agent::{Agent, Snapshot, SnapshotId};
use everturn_core::stream_log::{
    Entries, MemoryStreamLog, Position, StreamKey, StreamLog, StreamSubject, StreamWriter,
};
use everturn_core::{Error, Result, Status};

use crate::support::{replying, snapshots, texts};

async fn go_on(agent: &Agent, from: &SnapshotId, text: &str) -> SnapshotId {
    let reply = agent.chat().snapshot(from.clone()).run(text).await.unwrap();
    reply.snapshot_id().unwrap().clone()
}

async fn left(store: &MemoryStore) -> Vec<SnapshotId> {
    let snapshots = snapshots(store, &"s".into()).await;
    snapshots
        .into_iter()
        .map(|snapshot: Snapshot| snapshot.snapshot_id)
        .collect()
}

#[tokio::test]
async fn deleting_a_branch_deletes_all_its_descendants() {
    let store = MemoryStore::new();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    let root = agent.chat().resume("s").run("root").await.unwrap();
    let root = root.snapshot_id().unwrap().clone();
    let kept = go_on(&agent, &root, "kept").await;
    let branch = go_on(&agent, &root, "branch").await;
    let twig = go_on(&agent, &branch, "twig").await;
    go_on(&agent, &twig, "leaf").await;
    go_on(&agent, &branch, "other twig").await;
    let archive = agent.archive().unwrap();
    archive.fork(twig, "fork").await.unwrap();

    let deleted = archive.delete_branch(branch).await.unwrap();

    assert_eq!(deleted, 4);
    assert_eq!(left(&store).await, [root, kept]);
    let fork = archive.latest("fork").await.unwrap();
    assert_eq!(
        fork.state.unwrap().messages.len(),
        6,
        "a fork is a session of its own"
    );
}

#[tokio::test]
async fn descendants_of_a_deleted_snapshot_can_still_be_resumed() {
    let store = MemoryStore::new();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    let one = agent.chat().resume("s").run("one").await.unwrap();
    let one = one.snapshot_id().unwrap().clone();
    let two = go_on(&agent, &one, "two").await;
    let three = go_on(&agent, &two, "three").await;
    let archive = agent.archive().unwrap();

    assert!(archive.delete_snapshot(two.clone()).await.unwrap());
    assert!(!archive.delete_snapshot(two.clone()).await.unwrap());
    let reply = agent.chat().resume("s").run("four").await.unwrap();

    let snapshot = archive.get(reply.snapshot_id().unwrap().clone()).await.unwrap();
    assert_eq!(snapshot.parent_id, Some(three.clone()));
    assert_eq!(texts(&snapshot.state.unwrap().messages).len(), 8);
    assert_eq!(
        archive.get(two.clone()).await.unwrap_err().status(),
        Status::NotFound
    );
    assert_eq!(archive.get(three).await.unwrap().parent_id, Some(two));
}

#[tokio::test]
async fn after_its_tip_is_deleted_a_session_continues_from_the_parent() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    agent.chat().resume("s").run("one").await.unwrap();
    let two = agent.chat().resume("s").run("two").await.unwrap();
    let archive = agent.archive().unwrap();

    archive
        .delete_snapshot(two.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    let other = agent.chat().resume("s").run("other").await.unwrap();

    let state = archive
        .get(other.snapshot_id().unwrap().clone())
        .await
        .unwrap()
        .state
        .unwrap();
    assert_eq!(texts(&state.messages), ["one", "re: one", "other", "re: other"]);
}

#[tokio::test]
async fn a_deleted_session_starts_empty() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    agent.chat().resume("s").run("one").await.unwrap();
    agent.chat().resume("s").run("two").await.unwrap();
    agent.chat().resume("t").run("one").await.unwrap();
    let archive = agent.archive().unwrap();

    let deleted = archive.delete_session("s").await.unwrap();
    let sessions = archive
        .sessions(&SessionQuery::default())
        .await
        .unwrap()
        .items
        .len();
    agent.chat().resume("s").run("again").await.unwrap();

    assert_eq!((deleted, sessions), (2, 1));
    assert_eq!(archive.tree("s").await.unwrap().snapshots().len(), 1);
}

#[tokio::test]
async fn a_tenant_that_has_nothing_cannot_be_deleted() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    agent.chat().resume("s").run("one").await.unwrap();
    let archive = agent.archive().unwrap();

    let deleted = archive.delete_all().await.unwrap();
    let again = archive.delete_all().await.unwrap_err();

    assert_eq!((deleted, again.status()), (1, Status::NotFound));
}

/// A log that fails the first time something is erased.
#[derive(Debug, Default)]
struct FailingLog {
    inner: MemoryStreamLog,
    has_failed: AtomicBool,
}

#[async_trait]
impl StreamLog for FailingLog {
    async fn open(&self, key: &StreamKey) -> Result<Box<dyn StreamWriter>> {
        self.inner.open(key).await
    }

    async fn read(&self, key: &StreamKey, after: Position) -> Result<Entries> {
        self.inner.read(key, after).await
    }

    async fn stop(&self, key: &StreamKey) -> Result<()> {
        self.inner.stop(key).await
    }

    async fn erase(&self, subject: &StreamSubject) -> Result<u64> {
        if !self.has_failed.swap(true, Ordering::SeqCst) {
            return Err(Error::unavailable("the log is unplugged"));
        }
        self.inner.erase(subject).await
    }
}

#[tokio::test]
async fn a_deletion_that_was_cut_short_returns_the_whole_count_when_it_is_repeated() {
    let store = MemoryStore::new();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    for session in ["s", "t"] {
        for text in ["one", "two"] {
            agent.chat().resume(session).run(text).await.unwrap();
        }
    }
    let tenants = Tenants::of(store).with_streams(FailingLog::default());
    let tenant = agent.archive().unwrap().scope().clone();

    let cut_short = tenants.delete(&tenant, Some("request")).await.unwrap_err();
    let repeated = tenants.delete(&tenant, Some("request")).await.unwrap();
    let repeated_again = tenants.delete(&tenant, Some("request")).await.unwrap();

    assert_eq!(cut_short.status(), Status::Unavailable);
    assert_eq!((repeated, repeated_again), (4, 4));
}
