//! Maintenance of a database: compaction, the write-ahead log, backups.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use everturn_core::{Error, Result};
use rusqlite::Connection;

use crate::SqliteStore;
use crate::connection::{Thoroughness, deadline_after, empty_log, open, retry_until, scrub};
use crate::fault::{Fault, Outcome};

impl SqliteStore {
    /// Rebuilds the file without free space, and empties the write-ahead log.
    ///
    /// Afterwards no file of the store contains any deleted data. Saves wait meanwhile. Needs as much free
    /// disk space as the database has content.
    ///
    /// # Errors
    /// `UNAVAILABLE` if another process keeps reading or writing, `RESOURCE_EXHAUSTED` if the disk is full.
    pub async fn vacuum(&self) -> Result<()> {
        self.scrub(Thoroughness::Full).await
    }

    /// Removes the text of deleted rows from the store's files.
    pub(crate) async fn scrub(&self, thoroughness: Thoroughness) -> Result<()> {
        // An idle reader may hold an old view of the file, which keeps the write-ahead log.
        self.close_idle_readers();
        let work =
            move |connection: &mut Connection, deadline: Instant| scrub(connection, deadline, thoroughness);
        self.writer()
            .alone(work)
            .await?
            .map_err(|fault| fault.into_error(self.path()))
    }

    /// Moves the content of the write-ahead log into the database file and empties the log.
    ///
    /// SQLite does this itself while it writes, and [`SqliteStore::close`] at the end. To copy a store that
    /// is in use, use [`SqliteStore::backup`].
    ///
    /// # Errors
    /// `UNAVAILABLE` if another process keeps reading or writing.
    pub async fn checkpoint(&self) -> Result<()> {
        let work = move |connection: &mut Connection, deadline: Instant| {
            retry_until(deadline, || empty_log(connection))
        };
        self.writer()
            .alone(work)
            .await?
            .map_err(|fault| fault.into_error(self.path()))
    }

    /// Writes a consistent copy of the database to a new file. Reads and saves continue meanwhile.
    ///
    /// This is the way to copy a store that is in use. A copy of the file alone lacks what is in the
    /// write-ahead log, and a copy of both files may be of two moments. [`SqliteStore::open`] opens the copy.
    /// If `backup` fails, there is no copy; if it succeeds, the copy is complete and on the device.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the file exists; the file system's error if it cannot be written.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<()> {
        let (options, to) = (self.settings().clone(), to.as_ref().to_owned());
        let work = move || {
            let deadline = deadline_after(options.busy_timeout);
            let source = open(&options.path, options.busy_timeout)?;
            retry_until(deadline, || copy(&source, &to))
        };
        tokio::task::spawn_blocking(work)
            .await?
            .map_err(|fault: Fault| fault.into_error(self.path()))
    }
}

fn copy(source: &Connection, to: &Path) -> Outcome<()> {
    if to.exists() {
        let refusal = format!(
            "'{}' exists already: name a new file for the backup",
            to.display()
        );
        return Err(Error::already_exists(refusal).into());
    }
    // Copied under another name, so that an interrupted backup is never taken for a whole one.
    let unfinished = Unfinished(unfinished_name(to));
    let name = unfinished
        .0
        .to_str()
        .ok_or_else(|| Error::invalid_argument("the backup's path must be UTF-8"))?;
    source.execute("VACUUM INTO ?1", [name])?;
    let published = || -> std::io::Result<()> {
        // The content, then the name, then the folder: after a loss of power the backup is either complete or
        // absent.
        File::open(&unfinished.0)?.sync_all()?;
        std::fs::rename(&unfinished.0, to)?;
        match to.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => File::open(folder)?.sync_all(),
            None => File::open(".")?.sync_all(),
        }
    };
    published().map_err(|error| {
        Fault::Refused(
            Error::unavailable(format!("cannot write the backup '{}': {error}", to.display()))
                .with_source(error),
        )
    })
}

fn unfinished_name(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    to.with_file_name(name)
}

/// A file that is removed on drop unless it got its final name.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Usually it was renamed and no longer exists.
        let _ = std::fs::remove_file(&self.0);
    }
}
