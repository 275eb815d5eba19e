//! A save that stays in its middle, with the store's lock in its hands.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_agent::Snapshot;
use everturn_agent::store::{Mutation, Precondition, Scope, SessionStore};
use everturn_core::{Error, Result};
use everturn_file::{Disk, FileStore, RealDisk};
use everturn_sqlite::SqliteStore;
use jiff::Timestamp;

use super::StorePlace;

/// The session of the save.
const SESSION: &str = "neighbour";

pub(super) async fn hold(place: &StorePlace) -> Result<()> {
    let row = Snapshot::new(
        everturn_agent::SnapshotId::fresh(),
        SESSION.into(),
        Timestamp::now(),
    );
    let id = row.snapshot_id.clone();
    let store: Arc<dyn SessionStore> = match place {
        StorePlace::Sqlite(path) => Arc::new(SqliteStore::open(path).await?),
        StorePlace::Files(root) => {
            let disk = LingeringDisk::default();
            Arc::new(FileStore::options(root).disk(Arc::new(disk)).open().await?)
        }
        StorePlace::Postgres { .. } => {
            return Err(Error::failed_precondition(
                "PostgreSQL has no lock to hold in the middle of a save: it is one statement",
            ));
        }
    };
    // A database runs the mutation inside its transaction; a folder's lock is held when a row gets its name.
    let lingers = matches!(place, StorePlace::Sqlite(_));
    let save = Mutation::new(move |_| {
        if lingers {
            linger()?;
        }
        Ok(Some(row.clone()))
    });
    store
        .save(&Scope::default(), Some(&id), Precondition::None, save)
        .await?;
    Ok(())
}

/// Says so, and waits for a line.
fn linger() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "holding")?;
    out.flush()?;
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// A disk on which the first rename of a row takes until a line arrives.
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
