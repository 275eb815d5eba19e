//! A save that is cut off between any two file operations leaves the store whole.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::store::{Detail, PendingQuery, Precondition, Scope, SessionStore};
use everturn_agent::{SessionId, SessionState, Snapshot, SnapshotId, SnapshotStatus};
use everturn_ai::Message;
use everturn_file::{Disk, FileStore, RealDisk};
use jiff::Timestamp;

/// The file system, which dies before the operation with that number and stays dead.
#[derive(Debug)]
struct DyingDisk {
    operations: AtomicUsize,
    dies_before: usize,
}

impl DyingDisk {
    fn step(&self) -> io::Result<()> {
        if self.operations.fetch_add(1, Ordering::SeqCst) >= self.dies_before {
            return Err(io::Error::other("the machine is off"));
        }
        Ok(())
    }
}

impl Disk for DyingDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.create_folder(path)
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        self.step()?;
        RealDisk.read(path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        // Dying inside a write leaves a part of it.
        if let Err(error) = self.step() {
            RealDisk.write(path, &content[..content.len() / 2])?;
            return Err(error);
        }
        RealDisk.write(path, content)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.sync_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.sync_folder(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.remove(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.step()?;
        RealDisk.list(path)
    }

    fn folders(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.step()?;
        RealDisk.folders(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>> {
        self.step()?;
        RealDisk.lock(path)
    }
}

fn row(number: i64) -> Snapshot {
    let id = SnapshotId::from(format!("row-{number}"));
    let mut row = Snapshot::new(id, SessionId::from("s"), Timestamp::from_second(number).unwrap());
    let messages = (0..=number)
        .map(|n| Message::user(format!("message {n}")))
        .collect();
    row.state = Some(SessionState {
        session_id: Some("s".into()),
        messages,
        ..SessionState::default()
    });
    row.parent_id = (number > 1).then(|| SnapshotId::from(format!("row-{}", number - 1)));
    row
}

async fn put(store: &FileStore, row: Snapshot) -> everturn_core::Result<Option<Snapshot>> {
    let id = row.snapshot_id.clone();
    let mutation = Arc::new(move |_: Option<&Snapshot>| Ok(Some(row.clone())));
    store
        .save(&Scope::default(), Some(&id), Precondition::None, mutation)
        .await
}

async fn save(store: &FileStore, number: i64) -> everturn_core::Result<Option<Snapshot>> {
    let expected = (number > 1).then(|| SnapshotId::from(format!("row-{}", number - 1)));
    let row = row(number);
    let id = row.snapshot_id.clone();
    let mutation = Arc::new(move |_: Option<&Snapshot>| Ok(Some(row.clone())));
    store
        .save(
            &Scope::default(),
            Some(&id),
            Precondition::Tip(expected),
            mutation,
        )
        .await
}

#[tokio::test]
async fn whatever_was_acknowledged_is_there_and_the_rest_is_whole_or_absent() {
    for dies_before in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(DyingDisk {
            operations: AtomicUsize::new(0),
            dies_before,
        });
        let mut acknowledged = 0;

        if let Ok(store) = FileStore::options(folder.path())
            .without_polling()
            .disk(disk)
            .open()
        {
            for number in 1..=3 {
                if save(&store, number).await.is_err() {
                    break;
                }
                acknowledged = number;
            }
        }

        let store = FileStore::open(folder.path()).unwrap();
        for number in 1..=3 {
            let read = store
                .get(&Scope::default(), &row(number).snapshot_id, Detail::Whole)
                .await
                .unwrap();
            match read {
                Some(read) => assert_eq!(
                    read,
                    row(number),
                    "torn when dying before operation {dies_before}"
                ),
                None => assert!(
                    number > acknowledged,
                    "row {number} lost when dying before operation {dies_before}"
                ),
            }
        }
        let latest = store
            .latest(&Scope::default(), &"s".into(), Detail::Whole)
            .await
            .unwrap();
        let tip = latest.map_or(0, |row| row.created_at.as_second());
        assert!(
            tip >= acknowledged,
            "the tip went back from {acknowledged} to {tip} at operation {dies_before}"
        );
        save(&store, tip + 1)
            .await
            .unwrap_or_else(|error| panic!("cannot go on after {dies_before}: {error:?}"));

        if acknowledged == 3 {
            assert!(
                dies_before > 20,
                "only {dies_before} operations were looked between"
            );
            return;
        }
    }
}

#[tokio::test]
async fn an_acknowledged_background_run_is_found_whatever_was_cut_off() {
    for dies_before in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(DyingDisk {
            operations: AtomicUsize::new(0),
            dies_before,
        });
        let store = FileStore::options(folder.path())
            .without_polling()
            .disk(disk)
            .open();
        let mut run = row(1);
        run.status = SnapshotStatus::Pending;
        let mut over = run.clone();
        over.status = SnapshotStatus::Completed;

        let mut acknowledged = [false, false];
        if let Ok(store) = store {
            acknowledged[0] = put(&store, run).await.is_ok();
            acknowledged[1] = acknowledged[0] && put(&store, over).await.is_ok();
        }

        let store = FileStore::open(folder.path()).unwrap();
        let stored = store
            .get(&Scope::default(), &"row-1".into(), Detail::Metadata)
            .await
            .unwrap();
        let pending = stored.is_some_and(|row| row.status == SnapshotStatus::Pending);
        for look in 1..=2 {
            let found = store.pending(&PendingQuery::default()).await.unwrap().unwrap();
            assert_eq!(
                found.items.len(),
                usize::from(pending),
                "look {look} after dying before operation {dies_before}"
            );
        }
        if acknowledged[1] {
            assert!(
                dies_before > 20,
                "only {dies_before} operations were looked between"
            );
            return;
        }
    }
}
