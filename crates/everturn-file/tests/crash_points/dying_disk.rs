//! The file system, until the process dies.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_file::{Disk, RealDisk};

/// The file system, which dies before the operation with that number and stays dead.
#[derive(Debug)]
pub(crate) struct DyingDisk {
    operations: AtomicUsize,
    dies_before: usize,
}

impl DyingDisk {
    pub(crate) fn new(dies_before: usize) -> Self {
        Self {
            operations: AtomicUsize::new(0),
            dies_before,
        }
    }

    fn step(&self) -> io::Result<()> {
        if self.operations.fetch_add(1, Ordering::SeqCst) >= self.dies_before {
            return Err(io::Error::other("the process is dead"));
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

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>> {
        self.step()?;
        RealDisk.lock(path)
    }
}
