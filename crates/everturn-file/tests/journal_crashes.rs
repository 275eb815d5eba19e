//! A record of a journal that is cut off between any two file operations is whole or absent, and its number is free or taken.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::store::{Journal, JournalKey, JournalRecord, Scope, SessionQuery, SessionStore};
use everturn_file::{Disk, FileStore, RealDisk};
use serde_json::json;

/// The file system, which dies before the operation with that number and stays dead.
#[derive(Debug)]
struct DyingDisk {
    operations: AtomicUsize,
    dies_before: usize,
}

impl DyingDisk {
    fn then<T>(&self, operation: impl FnOnce(&RealDisk) -> io::Result<T>) -> io::Result<T> {
        if self.operations.fetch_add(1, Ordering::SeqCst) >= self.dies_before {
            return Err(io::Error::other("the machine is off"));
        }
        operation(&RealDisk)
    }
}

impl Disk for DyingDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.then(|disk| disk.create_folder(path))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        self.then(|disk| disk.read(path))
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.then(|disk| disk.write(path, content))
            .inspect_err(|_| drop(RealDisk.write(path, &content[..content.len() / 2])))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.then(|disk| disk.sync_file(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.then(|disk| disk.rename(from, to))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.then(|disk| disk.sync_folder(path))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.then(|disk| disk.remove(path))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.then(|disk| disk.remove_folder(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.then(|disk| disk.list(path))
    }

    fn folders(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.then(|disk| disk.folders(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>> {
        self.then(|disk| disk.lock(path))
    }
}

fn key() -> JournalKey {
    JournalKey::new("s".into(), "t")
}

fn record(sequence: u64) -> JournalRecord {
    JournalRecord {
        sequence,
        body: json!({"number": sequence, "padding": "x".repeat(1000)}),
    }
}

#[tokio::test]
async fn a_record_is_whole_or_absent_wherever_the_machine_stops() {
    for dies_before in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(DyingDisk {
            operations: AtomicUsize::new(0),
            dies_before,
        });
        let scope = Scope::default();
        let (mut acknowledged, mut cleared) = (0, false);
        if let Ok(store) = FileStore::options(folder.path())
            .without_polling()
            .disk(disk)
            .open()
        {
            while acknowledged < 3
                && store
                    .append(&scope, &key(), record(acknowledged), None)
                    .await
                    .is_ok()
            {
                acknowledged += 1;
            }
            cleared = acknowledged == 3 && store.clear(&scope, &key()).await.is_ok();
        }

        let store = FileStore::open(folder.path()).unwrap();
        let read = store.read(&scope, &key()).await.unwrap();

        // What is there is how the journal began; an unfinished clearing takes from its end.
        let expected: Vec<_> = (0..).map(record).take(read.len()).collect();
        assert_eq!(read, expected, "when dying before operation {dies_before}");
        if acknowledged < 3 {
            assert!(
                read.len() as u64 >= acknowledged,
                "lost at operation {dies_before}"
            );
        }
        let next = read.len() as u64;
        store.append(&scope, &key(), record(next), None).await.unwrap();
        let rows = store.sessions(&scope, &SessionQuery::default()).await.unwrap();
        assert!(rows.items.is_empty(), "a journal looks like a row");

        if cleared {
            assert!(
                dies_before > 25,
                "only {dies_before} operations were looked between"
            );
            return;
        }
    }
}

#[tokio::test]
async fn a_dropped_journal_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path()).unwrap();
    store
        .append(&Scope::default(), &key(), record(0), None)
        .await
        .unwrap();

    store.clear(&Scope::default(), &key()).await.unwrap();

    let left = std::fs::read_dir(folder.path().join(".journals"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
}
