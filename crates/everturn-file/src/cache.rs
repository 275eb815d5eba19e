//! Parsed contents of files, kept in memory until the files change.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::disk::Disk;
use crate::version::Version;

/// Parsed contents of files of one kind, shared by all handles of a store.
///
/// Every change of a file, by this process or another, changes its [`Version`]. Contents are kept with the
/// version of their file and used only while the file still has it. The version is read before the file: if
/// the file changes in between, the contents are kept under a version that no longer exists and are not used
/// again.
#[derive(Debug)]
pub(crate) struct Cache<T>(Arc<Mutex<Folders<T>>>);

type Folders<T> = HashMap<PathBuf, Files<T>>;

#[derive(Debug)]
struct Files<T> {
    known: HashMap<OsString, Known<T>>,
    listings: Arc<Listings>,
}

/// The listings of a folder, one after the other. One serves all callers that asked before it began.
#[derive(Debug, Default)]
struct Listings {
    begun: AtomicU64,
    /// The number of the last one that is complete.
    complete: Mutex<u64>,
}

impl Listings {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.complete.lock()
    }
}

/// A request for a listing that begins now or later.
struct Asked {
    listings: Arc<Listings>,
    after: u64,
}

#[derive(Debug)]
struct Known<T> {
    /// `None` for a file that was too young to have one: its content is read again.
    version: Option<Version>,
    /// `None` for a file of another kind.
    content: Option<Arc<T>>,
}

impl<T> Cache<T> {
    /// Returns the parsed content of a file; `None` if the file does not exist or is of another kind.
    pub(crate) fn read(
        &self,
        disk: &dyn Disk,
        path: &Path,
        parse: impl Fn(&Path, &[u8]) -> Option<T>,
    ) -> io::Result<Option<Arc<T>>> {
        self.read_if(disk, path, |_| true, parse)
    }

    /// Like [`Cache::read`]; `None` also if the content is not known yet and the file is not wanted.
    fn read_if(
        &self,
        disk: &dyn Disk,
        path: &Path,
        is_wanted: impl Fn(&Path) -> bool,
        parse: impl Fn(&Path, &[u8]) -> Option<T>,
    ) -> io::Result<Option<Arc<T>>> {
        let version = disk.version(path);
        if let Some(known) = version.and_then(|version| self.known(path, version)) {
            return Ok(known.content);
        }
        if !is_wanted(path) {
            return Ok(None);
        }
        let content = match disk.read(path) {
            // A pipe, a device or a file beyond any bound is of another kind.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            content => content?,
        };
        let content = content.and_then(|content| parse(path, &content)).map(Arc::new);
        if version.is_none() && content.is_none() {
            self.forget(path);
        } else {
            let known = Known {
                version,
                content: content.clone(),
            };
            self.keep(path, known);
        }
        Ok(content)
    }

    /// Returns the parsed contents of the `.json` files of a folder, unordered: of those that are known, and
    /// of those that are wanted.
    pub(crate) fn read_all(
        &self,
        disk: &dyn Disk,
        folder: &Path,
        is_wanted: impl Fn(&Path) -> bool,
        parse: impl Fn(&Path, &[u8]) -> Option<T>,
    ) -> io::Result<Vec<Arc<T>>> {
        let listings = self.ask(folder).listings;
        let paths = self.list(disk, folder, &listings.lock())?;
        let mut contents = Vec::with_capacity(paths.len());
        for path in paths {
            contents.extend(self.read_if(disk, &path, &is_wanted, &parse)?);
        }
        Ok(contents)
    }

    /// Returns the parsed contents of the `.json` files of a folder, unordered, without those that are known
    /// to be others for good. The file system is not asked about these, and a listing of the folder is shared
    /// by callers that wait for it.
    pub(crate) fn read_all_but(
        &self,
        disk: &dyn Disk,
        folder: &Path,
        is_other: impl Fn(&T) -> bool,
        parse: impl Fn(&Path, &[u8]) -> Option<T>,
    ) -> io::Result<Vec<Arc<T>>> {
        let asked = self.ask(folder);
        self.answer(&asked, disk, folder, is_other, parse)
    }

    fn ask(&self, folder: &Path) -> Asked {
        let listings = Arc::clone(&self.folders().entry(folder.to_owned()).or_default().listings);
        let after = listings.begun.load(Ordering::SeqCst);
        Asked { listings, after }
    }

    fn answer(
        &self,
        asked: &Asked,
        disk: &dyn Disk,
        folder: &Path,
        is_other: impl Fn(&T) -> bool,
        parse: impl Fn(&Path, &[u8]) -> Option<T>,
    ) -> io::Result<Vec<Arc<T>>> {
        let mut complete = asked.listings.lock();
        if *complete <= asked.after {
            let number = asked.listings.begun.fetch_add(1, Ordering::SeqCst) + 1;
            for path in self.list(disk, folder, &complete)? {
                if !self.is_known(&path) {
                    self.read(disk, &path, &parse)?;
                }
            }
            *complete = number;
        }
        drop(complete);
        let own: Vec<PathBuf> = match self.folders().get(folder) {
            Some(files) => {
                let known = files.known.iter();
                let own = known.filter(|(_, known)| !known.content.as_deref().is_some_and(&is_other));
                own.map(|(name, _)| folder.join(name)).collect()
            }
            None => Vec::new(),
        };
        let mut contents = Vec::with_capacity(own.len());
        for path in own {
            contents.extend(self.read(disk, &path, &parse)?);
        }
        Ok(contents)
    }

    /// Lists the `.json` files of a folder, and removes the entries of deleted files. Listings exclude one
    /// another, so that none forgets what a later one has found.
    fn list(&self, disk: &dyn Disk, folder: &Path, _turn: &MutexGuard<'_, u64>) -> io::Result<Vec<PathBuf>> {
        let mut paths = disk.list(folder)?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        self.forget_others(folder, &paths);
        Ok(paths)
    }

    /// Remembers the content of a file that was just written.
    pub(crate) fn learn(&self, path: &Path, content: T) {
        let known = Known {
            version: None,
            content: Some(Arc::new(content)),
        };
        self.keep(path, known);
    }

    /// Drops the content of a file that was removed.
    pub(crate) fn forget(&self, path: &Path) {
        let (folder, name) = place(path);
        if let Some(files) = self.folders().get_mut(folder) {
            files.known.remove(name);
        }
    }

    fn forget_others(&self, folder: &Path, paths: &[PathBuf]) {
        let mut folders = self.folders();
        if let Some(files) = folders.get_mut(folder) {
            let names: HashSet<&OsStr> = paths.iter().filter_map(|path| path.file_name()).collect();
            files.known.retain(|name, _| names.contains(name.as_os_str()));
            if files.known.is_empty() {
                folders.remove(folder);
            }
        }
    }

    fn is_known(&self, path: &Path) -> bool {
        let (folder, name) = place(path);
        let folders = self.folders();
        folders
            .get(folder)
            .is_some_and(|files| files.known.contains_key(name))
    }

    fn known(&self, path: &Path, version: Version) -> Option<Known<T>> {
        let (folder, name) = place(path);
        let folders = self.folders();
        let known = folders.get(folder)?.known.get(name)?;
        (known.version == Some(version)).then(|| known.clone())
    }

    fn keep(&self, path: &Path, known: Known<T>) {
        let (folder, name) = place(path);
        let mut folders = self.folders();
        if !folders.contains_key(folder) {
            folders.insert(folder.to_owned(), Files::default());
        }
        if let Some(files) = folders.get_mut(folder) {
            files.known.insert(name.to_owned(), known);
        }
    }

    fn folders(&self) -> MutexGuard<'_, Folders<T>> {
        self.0.lock()
    }
}

/// Splits a path into the folder and the name of the file.
fn place(path: &Path) -> (&Path, &OsStr) {
    (
        path.parent().unwrap_or(Path::new("")),
        path.file_name().unwrap_or_default(),
    )
}

impl<T> Clone for Known<T> {
    fn clone(&self) -> Self {
        Self {
            version: self.version,
            content: self.content.clone(),
        }
    }
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Files<T> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            listings: Arc::default(),
        }
    }
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::RealDisk;

    /// Creates a folder with files that are old enough to have a version.
    fn folder_of(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            while RealDisk.version(&path).is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        folder
    }

    fn text(_: &Path, content: &[u8]) -> Option<String> {
        String::from_utf8(content.to_owned()).ok()
    }

    #[test]
    fn an_unchanged_file_is_not_read_again() {
        let folder = folder_of(&["a.json"]);
        let cache = Cache::default();
        let first = cache.read_all(&RealDisk, folder.path(), |_| true, text).unwrap();

        let again = cache.read_all(&RealDisk, folder.path(), |_| true, |_, _| panic!("read again"));

        assert_eq!(*again.unwrap()[0], *first[0]);
    }

    const IS_OTHER: fn(&String) -> bool = |text| text.starts_with("other");

    #[test]
    fn a_file_that_is_known_to_be_another_is_not_looked_at_again() {
        let folder = folder_of(&["other.json", "own.json"]);
        let cache = Cache::default();
        let read = || {
            cache
                .read_all_but(&RealDisk, folder.path(), IS_OTHER, text)
                .unwrap()
        };
        assert_eq!(*read()[0], "own.json");

        for name in ["other.json", "own.json"] {
            std::fs::write(folder.path().join(name), "changed").unwrap();
        }

        let found = read();
        assert_eq!((found.len(), &**found[0]), (1, "changed"));
    }

    #[test]
    fn a_listing_serves_all_callers_that_asked_before_it_began() {
        let folder = folder_of(&["a.json"]);
        let cache = Cache::default();
        let answer = |asked| {
            cache
                .answer(&asked, &RealDisk, folder.path(), IS_OTHER, text)
                .unwrap()
                .len()
        };
        let (first, second) = (cache.ask(folder.path()), cache.ask(folder.path()));

        assert_eq!(answer(first), 1);
        std::fs::write(folder.path().join("b.json"), "b.json").unwrap();

        assert_eq!(answer(second), 1, "the listing that began before is used");
        assert_eq!(answer(cache.ask(folder.path())), 2);
    }

    #[test]
    fn removed_files_are_dropped_from_the_cache() {
        let folder = folder_of(&["a.json", "b.json"]);
        let cache = Cache::default();
        cache.read_all(&RealDisk, folder.path(), |_| true, text).unwrap();

        std::fs::remove_file(folder.path().join("a.json")).unwrap();
        cache.read_all(&RealDisk, folder.path(), |_| true, text).unwrap();
        assert_eq!(cache.folders()[folder.path()].known.len(), 1);

        std::fs::remove_dir_all(folder.path()).unwrap();
        cache.read_all(&RealDisk, folder.path(), |_| true, text).unwrap();
        assert!(cache.folders().is_empty());
    }
}
