//! Detecting that the files of a database were removed or replaced while it is open.
//!
//! SQLite continues to use the files that it has opened, even if their names refer to other files. Data that
//! it then writes is lost when the last process closes them.

use std::path::{Path, PathBuf};

use everturn_core::Error;

use crate::fault::Outcome;

/// The database file and its write-ahead log, as they were when the database was opened.
#[derive(Debug)]
pub(crate) struct FileIdentity {
    database: Option<Identity>,
    log: Option<Identity>,
}

/// The numbers of a file's device and inode; `None` for a file that does not exist, and on systems without
/// such numbers.
type Identity = (u64, u64);

impl FileIdentity {
    pub(crate) fn of(path: &Path) -> Self {
        Self {
            database: identity(path),
            log: identity(&log_of(path)),
        }
    }

    /// Checks that the names still lead to the files that were opened. The files are not opened: closing them
    /// would release the locks on them.
    ///
    /// # Errors
    /// `DATA_LOSS` if they do not.
    pub(crate) fn check(&mut self, path: &Path) -> Outcome<()> {
        let now = Self::of(path);
        // A new database has no log before its first transaction.
        self.log = self.log.or(now.log);
        if now.database == self.database && now.log == self.log {
            return Ok(());
        }
        Err(Error::data_loss(format!(
            "the session database '{}' was removed or replaced while it was open, so what was just saved is not in it: \
             restart the program with the right file",
            path.display()
        ))
        .into())
    }
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;

    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}
