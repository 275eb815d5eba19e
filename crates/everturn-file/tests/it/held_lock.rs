//! While another process holds a scope's lock, saves fail at their deadline, and reads and other scopes do
//! not wait.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use everturn_agent::store::{
    Detail, Mutation, PendingQuery, Precondition, Scope, SessionStore, SnapshotQuery,
};
use everturn_agent::{Snapshot, SnapshotStatus};
use everturn_core::{Result, Status};
use everturn_file::FileStore;
use futures::future::join_all;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::platter::{Platter, Skipped};
use crate::support::{put, row};

const BUSY_TIMEOUT: Duration = Duration::from_millis(600);

/// How much later than its deadline a save may be answered: the longest interval at which the lock is tried.
const GRACE: Duration = Duration::from_millis(20);

/// After which time a save hangs.
const HANGS: Duration = Duration::from_mins(1);

/// More saves than the store has threads that may block.
const SAVES: usize = 150;

/// Holds the lock as another process would.
fn hold(folder: &Path) -> File {
    let file = File::options()
        .write(true)
        .open(folder.join("global/.lock"))
        .unwrap();
    file.lock().unwrap();
    file
}

async fn store_in(folder: &Path) -> FileStore {
    let store = FileStore::options(folder).busy_timeout(BUSY_TIMEOUT).open().await;
    let store = store.unwrap();
    put(&store, row(1), Precondition::None).await.unwrap();
    store
}

#[cfg(target_os = "linux")]
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[tokio::test(start_paused = true)]
async fn waiting_saves_fail_together_while_reads_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path()).await;
    let held = hold(folder.path());

    let asked = Instant::now();
    let saves: Vec<_> = (0..SAVES)
        .map(|number| {
            let (store, mut row) = (store.clone(), row(2));
            row.snapshot_id = format!("waiting-{number}").into();
            row.session_id = Some(format!("session-{number}").into());
            tokio::spawn(async move { (put(&store, row, Precondition::None).await, asked.elapsed()) })
        })
        .collect();
    for _ in 0..10 {
        let latest = store.latest(&Scope::default(), &"s".into(), Detail::Whole).await;
        assert!(latest.unwrap().is_some());
        let listed = store
            .list(&Scope::default(), &SnapshotQuery::of("s".into()))
            .await;
        assert_eq!(listed.unwrap().items.len(), 1);
        store.pending(&PendingQuery::default()).await.unwrap();
    }
    assert!(asked.elapsed() < BUSY_TIMEOUT, "reads waited");
    #[cfg(target_os = "linux")]
    assert!(threads() < 400, "{} threads wait", threads());
    for save in join_all(saves).await {
        let (outcome, took) = save.unwrap();
        let error = outcome.unwrap_err();
        assert_eq!(error.status(), Status::Unavailable, "{error}");
        assert!(took >= BUSY_TIMEOUT, "a save failed after {took:?}");
        assert!(took < BUSY_TIMEOUT + GRACE, "a save took {took:?}");
    }
    drop(held);

    put(&store, row(2), Precondition::Tip(Some("row-1".into())))
        .await
        .unwrap();
}

/// Returns a store on a device whose locks a test can hold, and a save that waits for one.
async fn waiting() -> (Arc<Platter>, FileStore, JoinHandle<Result<Option<Snapshot>>>) {
    let platter = Arc::new(Platter::new(Skipped::Nothing, usize::MAX));
    let options = FileStore::options("sessions").busy_timeout(HANGS);
    let store = options.disk(Arc::clone(&platter) as _).open().await.unwrap();
    put(&store, row(1), Precondition::None).await.unwrap();
    platter.hold(true);
    let own = store.clone();
    let save = tokio::spawn(async move { put(&own, row(2), Precondition::None).await });
    platter.refused().await;
    (platter, store, save)
}

#[tokio::test]
async fn a_save_that_waits_is_written_when_the_lock_is_free() {
    let (platter, _store, save) = waiting().await;

    platter.hold(false);

    assert!(save.await.unwrap().unwrap().is_some());
}

/// The number of threads on which saves prepare.
const PREPARING: usize = 64;

#[tokio::test]
async fn a_save_that_has_the_lock_does_not_wait_for_those_that_prepare() {
    let (platter, store, save) = waiting().await;
    let (reached, mut begun) = unbounded_channel();
    let gate = Arc::new(Barrier::new(PREPARING + 1));
    let preparing: Vec<_> = (0..PREPARING)
        .map(|number| {
            let (store, reached, gate) = (store.clone(), reached.clone(), Arc::clone(&gate));
            let mutation = Mutation::new(move |_| {
                reached.send(()).unwrap();
                gate.wait();
                Ok(None)
            });
            tokio::spawn(async move {
                let id = format!("preparing-{number}").into();
                store
                    .save(&Scope::default(), Some(&id), Precondition::None, mutation)
                    .await
            })
        })
        .collect();
    for _ in 0..PREPARING {
        begun.recv().await.unwrap();
    }

    platter.hold(false);
    let saved = tokio::time::timeout(HANGS, save).await;
    gate.wait();

    let saved = saved.expect("the save waits for others").unwrap();
    assert!(saved.unwrap().is_some());
    for other in join_all(preparing).await {
        assert_eq!(other.unwrap().unwrap(), None);
    }
}

#[tokio::test]
async fn another_scope_is_not_delayed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path()).await;
    let _held = hold(folder.path());

    let other = row(1);
    let save = Mutation::new(move |_| Ok(Some(other.clone())));
    let saved = store
        .save(
            &Scope::new("other"),
            Some(&"row-1".into()),
            Precondition::None,
            save,
        )
        .await;

    assert!(saved.unwrap().is_some());
}

#[tokio::test]
async fn a_lock_file_that_was_removed_excludes_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path()).await;
    let _held = hold(folder.path());
    std::fs::remove_file(folder.path().join("global/.lock")).unwrap();

    let saved = put(&store, row(2), Precondition::None).await;

    assert!(saved.unwrap().is_some());
}

/// Adds a label to a row that is not over.
fn label() -> Mutation {
    Mutation::new(|existing| {
        let mut counted = existing.cloned().unwrap_or_else(|| row(9));
        counted.status = SnapshotStatus::Pending;
        counted.labels.push("once more".to_owned());
        Ok(Some(counted))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_mutation_runs_while_the_folder_is_locked_and_one_that_lost_its_race_runs_again() {
    let rounds = 3;
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path()).await;
    let other = FileStore::open(folder.path()).await.unwrap();
    let save = |store: FileStore, mutation| async move {
        let (scope, id) = (Scope::default(), "row-9".into());
        store.save(&scope, Some(&id), Precondition::None, mutation).await
    };
    let ((reached, begun), (go_on, told)) = (channel(), channel());
    let waits = Mutex::new((rounds, reached, told));
    let mutation = Mutation::new(move |existing| {
        let mut waits = waits.lock().unwrap();
        if waits.0 > 0 {
            waits.0 -= 1;
            waits.1.send(()).unwrap();
            waits.2.recv().unwrap();
        }
        label().apply(existing)
    });
    let slow = tokio::spawn(save(store, mutation));

    for _ in 0..rounds {
        begun.recv().unwrap();
        // The slow mutation is running, and the lock is free.
        save(other.clone(), label()).await.unwrap();
        go_on.send(()).unwrap();
    }

    let saved = slow.await.unwrap().unwrap().unwrap();
    assert_eq!(saved.labels.len(), rounds + 1);
}
