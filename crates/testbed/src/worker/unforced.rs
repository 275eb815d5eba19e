//! A file system without `fsync`.

use std::io;
use std::path::{Path, PathBuf};

use everturn_file::{Disk, RealDisk, Version};

/// A file system without `fsync`: a killed process loses nothing that the operating system has received, and
/// tests do not depend on the speed of the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnforcedDisk;

impl Disk for UnforcedDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_folder(path)
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        RealDisk.read(path)
    }

    fn version(&self, path: &Path) -> Option<Version> {
        RealDisk.version(path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        RealDisk.write(path, content)
    }

    fn sync_file(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_folder(path)
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
