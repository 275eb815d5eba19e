//! A file system that stops working.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_file::{Disk, RealDisk, Version};

/// The file system, which dies before the operation with that number and stays dead.
#[derive(Debug)]
pub(crate) struct DyingDisk {
    operations: AtomicUsize,
    dies_before: usize,
}

impl DyingDisk {
    pub(crate) fn before(operation: usize) -> Arc<Self> {
        Arc::new(Self {
            operations: AtomicUsize::new(0),
            dies_before: operation,
        })
    }

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

    fn version(&self, path: &Path) -> Option<Version> {
        self.then(|disk| Ok(disk.version(path))).ok().flatten()
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        // Dying inside a write leaves a part of it.
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

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send>>> {
        self.then(|disk| disk.try_lock(path))
    }
}
