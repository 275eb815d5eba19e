//! Defects that only other processes can reveal are caught by the parts of the kit that start some.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::time::{Duration, Instant};

use everturn_agent::store::SessionStore;
use everturn_file::{Disk, FileStore, RealDisk};
use everturn_testkit::blocking_real_pause;
use everturn_testkit::certify::{certify, certify_crashes, certify_processes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    /// The lock excludes only the threads of one process.
    LocksThreadsOnly,
    /// Saves are acknowledged before the operating system has them.
    AcknowledgesEarly,
}

/// The file system, seen through a defect.
#[derive(Debug)]
struct DefectiveDisk {
    defect: Defect,
    /// The writes that have not reached the file system, for this process to read.
    on_its_way: Arc<Mutex<HashMap<PathBuf, Vec<u8>>>>,
    renames: mpsc::Sender<Rename>,
}

/// A rename that was acknowledged and has yet to be done.
#[derive(Debug)]
struct Rename {
    due: Instant,
    from: PathBuf,
    to: PathBuf,
    content: Vec<u8>,
}

impl DefectiveDisk {
    fn with(defect: Defect) -> Arc<dyn Disk> {
        let (renames, queue) = mpsc::channel::<Rename>();
        let on_its_way: Arc<Mutex<HashMap<PathBuf, Vec<u8>>>> = Arc::default();
        let late = Arc::clone(&on_its_way);
        // Ends with the disk, whose queue it works off in order.
        std::thread::spawn(move || {
            for Rename {
                due,
                from,
                to,
                content,
            } in queue
            {
                let late_by = due.saturating_duration_since(Instant::now());
                blocking_real_pause(late_by, "the defect is a rename that happens late");
                RealDisk.rename(&from, &to).unwrap();
                let mut late = late.lock().unwrap();
                if late.get(&to) == Some(&content) {
                    late.remove(&to);
                }
            }
        });
        Arc::new(Self {
            defect,
            on_its_way,
            renames,
        })
    }
}

impl Disk for DefectiveDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_folder(path)
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match self.on_its_way.lock().unwrap().get(path) {
            Some(content) => Ok(Some(content.clone())),
            None => RealDisk.read(path),
        }
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        RealDisk.write(path, content)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.defect != Defect::AcknowledgesEarly {
            return RealDisk.rename(from, to);
        }
        let content = RealDisk.read(from)?.ok_or(io::ErrorKind::NotFound)?;
        self.on_its_way
            .lock()
            .unwrap()
            .insert(to.to_owned(), content.clone());
        let rename = Rename {
            due: Instant::now() + Duration::from_millis(20),
            from: from.to_owned(),
            to: to.to_owned(),
            content,
        };
        self.renames.send(rename).map_err(io::Error::other)
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
        static THREADS: LazyLock<Arc<tokio::sync::Mutex<()>>> = LazyLock::new(Arc::default);
        if self.defect != Defect::LocksThreadsOnly {
            return RealDisk.try_lock(path);
        }
        let held = Arc::clone(&THREADS).try_lock_owned();
        Ok(held.ok().map(|held| Box::new(held) as Box<dyn Send>))
    }
}

async fn defective(folder: PathBuf, defect: Defect) -> Arc<dyn SessionStore> {
    let options = FileStore::options(folder).poll_every(Duration::from_millis(20));
    Arc::new(options.disk(DefectiveDisk::with(defect)).open().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lock_that_excludes_only_threads_is_caught_by_processes_alone() {
    let folder = tempfile::tempdir().unwrap();
    let test = "planted_defects::a_lock_that_excludes_only_threads_is_caught_by_processes_alone";

    let shared = folder.path().join("processes");
    let open = async |folder| defective(folder, Defect::LocksThreadsOnly).await;
    let in_processes = certify_processes(test, &shared, open).await;
    if in_processes.findings().is_empty() {
        return;
    }
    let mut stores = 0;
    let in_threads = certify(|| {
        stores += 1;
        let folder = folder.path().join(stores.to_string());
        defective(folder, Defect::LocksThreadsOnly)
    })
    .await;

    in_threads.assert_kept();
    assert!(
        in_processes.broken().next().is_some(),
        "not caught:\n{in_processes}"
    );
}

#[tokio::test]
async fn an_early_acknowledgement_is_caught_by_kills() {
    let folder = tempfile::tempdir().unwrap();
    let test = "planted_defects::an_early_acknowledgement_is_caught_by_kills";

    let open = async |folder| defective(folder, Defect::AcknowledgesEarly).await;
    let certificate = certify_crashes(test, folder.path(), 60, open).await;

    assert!(
        certificate.broken().next().is_some(),
        "not caught:\n{certificate}"
    );
}
