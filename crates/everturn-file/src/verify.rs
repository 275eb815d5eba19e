//! Checking every file of a store.

use std::fmt::Display;
use std::io;
use std::path::Path;

use everturn_agent::SessionId;
use everturn_agent::store::{Detail, Scope};
use everturn_core::{Result, Status};

use crate::FileStore;
use crate::checksum::Seal;
use crate::files::Files;

/// The greatest number of listed problems.
const MAX_PROBLEMS: usize = 100;

/// The result of [`FileStore::verify`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// The number of snapshots.
    pub snapshots: u64,
    /// The number of snapshots without a checksum, of other runtimes or earlier versions. They are read, but
    /// a change that leaves valid JSON is not noticed.
    pub unchecked: u64,
    /// The problems found, at most 100.
    pub problems: Vec<String>,
}

impl Verification {
    /// Returns whether no problem was found.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, what: impl Display) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(what.to_string());
        }
    }
}

impl FileStore {
    /// Reads every file of a scope and checks it: that each snapshot is what was written, and that each
    /// session has the tip that was last written.
    ///
    /// # Errors
    /// The file system's error if a file cannot be read at all. Problems inside the files are listed in the
    /// [`Verification`].
    pub async fn verify(&self, scope: &Scope) -> Result<Verification> {
        self.on_files(scope, |files| files.verify()).await
    }
}

impl Files {
    fn verify(&self) -> Result<Verification> {
        let mut found = Verification::default();
        for path in self.disk.list(self.folder.path())? {
            if is_json(&path) {
                self.verify_row(&path, &mut found)?;
            }
        }
        for path in self.disk.list(&self.folder.pointers())? {
            if let Some(session) = path.file_stem().and_then(|name| name.to_str())
                && is_json(&path)
            {
                self.verify_tip(&SessionId::from(session), &mut found)?;
            }
        }
        Ok(found)
    }

    fn verify_row(&self, path: &Path, found: &mut Verification) -> Result<()> {
        let content = match self.disk.read(path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                found.problem(format!("'{}': {error}", path.display()));
                return Ok(());
            }
            content => content?,
        };
        // A listed file that no longer exists was deleted meanwhile.
        let Some(content) = content else {
            return Ok(());
        };
        found.snapshots += 1;
        found.unchecked += u64::from(Seal::of(&content) == Seal::Absent);
        match crate::row::parse(path, &content, Detail::Whole) {
            Ok(row) if self.folder.row(&row.snapshot_id).is_ok_and(|own| own == path) => {}
            Ok(row) => found.problem(format!(
                "'{}' holds snapshot '{}'",
                path.display(),
                row.snapshot_id
            )),
            Err(error) => found.problem(error.message()),
        }
        Ok(())
    }

    fn verify_tip(&self, session: &SessionId, found: &mut Verification) -> Result<()> {
        match self.latest(session, Detail::Metadata) {
            Err(error) if error.status() == Status::DataLoss => {
                found.problem(error.message());
                Ok(())
            }
            latest => latest.map(drop),
        }
    }
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}
