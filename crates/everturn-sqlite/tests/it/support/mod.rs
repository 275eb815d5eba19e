//! Support for the tests of the store.

pub(crate) mod log_under_test;
mod rows;

use std::path::{Path, PathBuf};

use everturn_agent::store::{Detail, Mutation, Precondition, SessionQuery, SessionStore, SnapshotQuery};
use everturn_agent::{SessionId, Snapshot, SnapshotId, SnapshotStatus};
use everturn_ai::History;
use everturn_core::Result;
use everturn_sqlite::{Durability, SqliteStore};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::rows::{at, get, put, row, scope, set, state_of};

/// A store in a temporary folder, which is removed after the test.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) store: SqliteStore,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        Self { folder, store }
    }

    pub(crate) fn path(&self) -> PathBuf {
        path(self.folder.path())
    }

    /// Opens the same database again, with empty caches.
    pub(crate) async fn reopened(self) -> Self {
        let Self { folder, store } = self;
        drop(store);
        let store = open(folder.path()).await;
        Self { folder, store }
    }
}

pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("sessions.db")
}

/// Opens a store without forcing data to the device: the tested guarantees do not depend on it, and tests are
/// faster.
pub(crate) async fn open(folder: &Path) -> SqliteStore {
    SqliteStore::options(path(folder))
        .durability(Durability::Normal)
        .open()
        .await
        .unwrap()
}

/// Begins a save and waits until the store has prepared it. The store takes the write lock next.
pub(crate) async fn begun_save(store: &SqliteStore, row: Snapshot) -> JoinHandle<Result<Option<Snapshot>>> {
    let (store, id, begun) = (store.clone(), row.snapshot_id.clone(), CancellationToken::new());
    let prepared = begun.clone();
    let save = Mutation::new(move |_| {
        prepared.cancel();
        Ok(Some(row.clone()))
    });
    let saving = tokio::spawn(async move { store.save(&scope(), Some(&id), Precondition::None, save).await });
    begun.cancelled().await;
    saving
}

pub(crate) async fn latest(store: &dyn SessionStore, session: &str) -> Option<SnapshotId> {
    let latest = store
        .latest(&scope(), &session.into(), Detail::Metadata)
        .await
        .unwrap();
    latest.map(|row| row.snapshot_id)
}

pub(crate) async fn ids(store: &dyn SessionStore, query: &SnapshotQuery) -> Vec<String> {
    let page = store.list(&scope(), query).await.unwrap();
    page.items.iter().map(|row| row.snapshot_id.to_string()).collect()
}

pub(crate) async fn session_ids(store: &dyn SessionStore) -> Vec<SessionId> {
    let page = store.sessions(&scope(), &SessionQuery::default()).await.unwrap();
    page.items.into_iter().map(|summary| summary.session_id).collect()
}

pub(crate) fn texts(history: &History) -> Vec<String> {
    history
        .iter()
        .map(|message| message.text().into_owned())
        .collect()
}

pub(crate) fn with_status(mut row: Snapshot, status: SnapshotStatus) -> Snapshot {
    row.status = status;
    row
}

/// Returns the database file and all other files of its folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

pub(crate) fn bytes_on_disk(folder: &Path) -> u64 {
    files(folder)
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum()
}

/// Text that reads like prose and compresses like it.
pub(crate) fn prose(random: &mut fastrand::Rng, bytes: usize) -> String {
    const WORDS: &str = "the a of and to in leek soup potato that with butter for salt is was on kitchen as cream pepper \
        he she they simmer slowly until tender then add stock onion garlic bay leaf thyme serve warm bread ladle bowl \
        winter evening neighbour asked whether another helping might be had before the pot went cold remembered how \
        grandmother sliced each vegetable thin against her thumb while talking about trains harbour weather market \
        yesterday morning someone had left a basket by the door without any note inside just carrots and parsley";
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut text = String::new();
    while text.len() < bytes {
        text.push_str(words[random.usize(..words.len())]);
        text.push_str(if random.u8(..12) == 0 { ". " } else { " " });
    }
    text.truncate(bytes);
    text
}

pub(crate) fn noise(random: &mut fastrand::Rng, bytes: usize) -> String {
    std::iter::repeat_with(|| random.alphanumeric())
        .take(bytes)
        .collect()
}
