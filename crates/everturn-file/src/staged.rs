//! Files that are written before they have their names.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_core::{Error, Result};
use uuid::Uuid;

use crate::disk::Disk;

/// A file whose content is on the device, under a name that nobody reads. Removed unless it gets its own.
#[derive(Debug)]
pub(crate) struct Staged {
    disk: Arc<dyn Disk>,
    temporary: PathBuf,
    has_its_name: bool,
}

impl Staged {
    /// Writes a file beside a path.
    pub(crate) fn beside(disk: &Arc<dyn Disk>, path: &Path, content: &[u8]) -> Result<Self> {
        let staged = Self {
            disk: Arc::clone(disk),
            temporary: temporary_name(path),
            has_its_name: false,
        };
        let written = disk.write(&staged.temporary, content);
        written
            .and_then(|()| disk.sync_file(&staged.temporary))
            .map_err(|error| unwritten(path, error))?;
        Ok(staged)
    }

    /// Gives it its name, as a whole. The name is on the device once the folder is forced there.
    pub(crate) fn publish(mut self, path: &Path) -> Result<()> {
        let renamed = self.disk.rename(&self.temporary, path);
        renamed.map_err(|error| unwritten(path, error))?;
        self.has_its_name = true;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.has_its_name {
            // Best effort: what cannot be written may not be removable either, and readers pass it over.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

fn unwritten(path: &Path, error: io::Error) -> Error {
    Error::unavailable(format!("cannot write '{}': {error}", path.display())).with_source(error)
}

/// A name beside a path that nobody looks for.
pub(crate) fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", Uuid::new_v4().simple()));
    path.with_file_name(name)
}
