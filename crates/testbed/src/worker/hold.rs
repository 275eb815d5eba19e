//! A save that stops while it holds the store's lock.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everturn_agent::Snapshot;
use everturn_agent::store::{Mutation, Precondition, Scope, SessionStore};
use everturn_core::{Error, Result};
use everturn_file::{Disk, FileStore, RealDisk};
use jiff::Timestamp;
use rusqlite::Connection;

use super::StorePlace;

/// The session of the save.
const SESSION: &str = "neighbour";

/// How long to wait for the lock.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn hold(place: &StorePlace) -> Result<()> {
    match place {
        StorePlace::Sqlite(path) => hold_database(path),
        StorePlace::Files(root) => hold_folder(root).await,
        StorePlace::Postgres { .. } => Err(Error::failed_precondition(
            "PostgreSQL has no lock to hold in the middle of a save: it is one statement",
        )),
    }
}

/// Stays in a transaction. The store's own transactions are too short to be stopped deliberately.
fn hold_database(path: &Path) -> Result<()> {
    let failed = |error: rusqlite::Error| Error::unavailable(format!("cannot take the write lock: {error}"));
    let database = Connection::open(path).map_err(failed)?;
    database.busy_timeout(PATIENCE).map_err(failed)?;
    database.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    linger()?;
    database.execute_batch("COMMIT").map_err(failed)
}

/// Stays in a save at the moment when its row is renamed.
async fn hold_folder(root: &Path) -> Result<()> {
    let row = Snapshot::new(
        everturn_agent::SnapshotId::generate(),
        SESSION.into(),
        Timestamp::now(),
    );
    let id = row.snapshot_id.clone();
    let disk = Arc::new(LingeringDisk::default());
    let store = FileStore::options(root).disk(disk).open().await?;
    let save = Mutation::new(move |_| Ok(Some(row.clone())));
    store
        .save(&Scope::default(), Some(&id), Precondition::None, save)
        .await?;
    Ok(())
}

/// Prints `holding`, and waits for a line.
fn linger() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "holding")?;
    out.flush()?;
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// A file system whose first rename of a row waits for a line.
#[derive(Default)]
struct LingeringDisk {
    has_lingered: AtomicBool,
}

impl fmt::Debug for LingeringDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LingeringDisk")
    }
}

impl Disk for LingeringDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_folder(path)
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        RealDisk.read(path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        RealDisk.write(path, content)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let is_row = to.parent().is_some_and(|folder| !folder.ends_with(".pointers"));
        if is_row && !self.has_lingered.swap(true, Ordering::Relaxed) {
            linger()?;
        }
        RealDisk.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_folder(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        RealDisk.list(path)
    }

    fn folders(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        RealDisk.folders(path)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send>>> {
        RealDisk.try_lock(path)
    }
}
