//! The store: every method of the trait, as blocking work on files.

use std::path::Path;

use async_trait::async_trait;
use everturn_agent::store::{
    Deletion, Detail, Journal, JournalKey, Mutation, Page, PendingPage, PendingQuery, Precondition, Scope,
    SessionQuery, SessionStore, SessionSummary, SnapshotQuery, StatusStream, TurnLocks, UsageLedger,
    id_to_save, page_of_tenants,
};
use everturn_agent::{Clock, SessionId, Snapshot, SnapshotId};
use everturn_core::Result;
use tokio::time::Instant;

use crate::cache::Cache;
use crate::files::{Files, Lock, Queues};
use crate::journal::Journals;
use crate::layout::Folder;
use crate::list::tenants;
use crate::options::FileStoreOptions;
use crate::pending::{self, Marker};
use crate::row::Header;
use crate::threads::Threads;
use crate::usage_ledger::{LedgerFile, LedgerQueues};
use crate::watch::Watchers;
use crate::write::{Published, Saved};

/// The least number of attempts before a save fails at its deadline because other processes keep changing its
/// row.
const MIN_ATTEMPTS: u32 = 3;

/// A session store that keeps each snapshot as one readable JSON file.
///
/// The layout is the one that Genkit's Go and JavaScript file stores write, so each runtime can continue the
/// other's folder. Saves of all processes exclude one another through a lock file per scope, and a save is on
/// the device before it returns. A clone is another handle to the same store.
///
/// Each file holds the whole conversation, so disk use grows with the square of the conversation's length. A
/// listing of sessions checks the metadata of every file of the scope, and reads the files that are new or
/// have changed since the last listing. To detect changes, the store keeps a few hundred bytes per snapshot
/// in memory. The first turn of a session lists the names of the scope's files, and reads the new ones. A
/// branch reads only the beginning of most files. Use a database for long conversations and many sessions.
/// The store's guarantees are listed in the [crate's documentation](crate).
///
/// ```
/// use everturn_agent::store::{Scope, SessionStore};
/// use everturn_file::FileStore;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> everturn_core::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("everturn-doc-{}", std::process::id()));
/// let store = FileStore::open(&folder).await?;
///
/// assert_eq!(store.get(&Scope::default(), &"missing".into(), Default::default()).await?, None);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct FileStore {
    pub(crate) options: FileStoreOptions,
    pub(crate) headers: Cache<Header>,
    pub(crate) markers: Cache<Marker>,
    pub(crate) queues: Queues,
    pub(crate) ledgers: LedgerQueues,
    pub(crate) threads: Threads,
    watchers: Watchers,
}

impl FileStore {
    /// Opens the store in a folder, creating the folder if it does not exist.
    ///
    /// # Errors
    /// As [`FileStoreOptions::open`].
    pub async fn open(root: impl AsRef<Path>) -> Result<Self> {
        Self::options(root).open().await
    }

    /// Returns the settings of a store in a folder, to change before it is opened.
    pub fn options(root: impl AsRef<Path>) -> FileStoreOptions {
        FileStoreOptions::new(root.as_ref())
    }

    pub(crate) fn start(options: FileStoreOptions) -> Result<Self> {
        options.disk.create_folder(&options.root)?;
        Ok(Self {
            options,
            headers: Cache::default(),
            markers: Cache::default(),
            queues: Queues::default(),
            ledgers: LedgerQueues::default(),
            threads: Threads::default(),
            watchers: Watchers::default(),
        })
    }

    /// Returns the folder of the store.
    pub fn root(&self) -> &Path {
        &self.options.root
    }

    /// Returns the files of a scope.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the scope's name cannot be a folder's.
    pub(crate) fn files(&self, scope: &Scope) -> Result<Files> {
        let options = &self.options;
        Ok(Files {
            root: options.root.clone(),
            scope: scope.clone(),
            folder: Folder::of(&options.root, scope)?,
            disk: options.disk.clone(),
            headers: self.headers.clone(),
            queues: self.queues.clone(),
            threads: self.threads.clone(),
        })
    }

    /// Reads a scope's files on a thread that may block.
    pub(crate) async fn on_files<T: Send + 'static>(
        &self,
        scope: &Scope,
        work: impl FnOnce(Files) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let files = self.files(scope)?;
        self.threads.read(move || work(files)).await
    }
}

impl FileStore {
    /// Writes the row that a mutation returns. Returns `None` if the mutation writes nothing.
    ///
    /// The mutation runs while the lock is free. If the row has changed when the lock is taken, it runs
    /// again. Other saves of this process then wait, so that only other processes can change the row again.
    async fn publish(
        &self,
        scope: &Scope,
        id: &SnapshotId,
        precondition: Precondition,
        mutation: Mutation,
        asked: Instant,
    ) -> Result<Option<Saved>> {
        let mut place = None;
        for attempt in 1.. {
            let (own, files, mutation) = (id.clone(), self.files(scope)?, mutation.clone());
            let draft = move || {
                files.folder.row(&own)?;
                files.disk.create_folder(&files.folder.pointers())?;
                files.draft(&own, &mutation)
            };
            let draft = self.prepare(scope, asked, draft).await?;
            let (own, precondition, watchers) = (id.clone(), precondition.clone(), self.watchers.clone());
            let publish =
                move |files: &Files, lock: Lock| files.publish(&own, draft, &precondition, &watchers, lock);
            let published = match place {
                None => self.under_lock(scope, asked, publish).await?,
                Some(place) => self.under_lock_from(place, scope, asked, publish).await?,
            };
            match published {
                Published::Done(saved) => return Ok(saved.map(|saved| *saved)),
                Published::Stale(kept) => place = Some(kept),
            }
            if attempt >= MIN_ATTEMPTS && asked.elapsed() >= self.options.busy_timeout {
                break;
            }
        }
        Err(self.busy(&self.files(scope)?))
    }

    /// Removes the files that a saved row makes obsolete, until the save's deadline. The rest is removed
    /// later.
    async fn tidy(&self, scope: &Scope, asked: Instant, saved: Saved) -> Result<Snapshot> {
        let Saved { row, ends } = saved;
        if ends {
            let (files, id) = (self.files(scope)?, row.snapshot_id.clone());
            let unmark = self.threads.write(move || files.unmark_stale(&id));
            // A marker that stays is removed when it is next read.
            let _ = unmark.await;
        }
        let Some(max_chain) = self.options.max_chain else {
            return Ok(row);
        };
        let last = row.clone();
        let prune = move |files: &Files, lock: Lock| files.prune(&last, max_chain, &lock);
        if let Err(error) = self.under_lock(scope, asked, prune).await {
            tracing::warn!(%error, "snapshots beyond max_chain were not deleted; the next save tries again");
        }
        Ok(row)
    }
}

#[async_trait]
impl SessionStore for FileStore {
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        let id = id.clone();
        self.on_files(scope, move |files| files.read(&id, detail)).await
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        let session = session.clone();
        self.on_files(scope, move |files| files.latest(&session, detail))
            .await
    }

    async fn commit(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
        journals: &[JournalKey],
    ) -> Result<Option<Snapshot>> {
        let asked = Instant::now();
        let id = id_to_save(id);
        let Some(saved) = self.publish(scope, &id, precondition, mutation, asked).await? else {
            return Ok(None);
        };
        for key in journals {
            if let Err(error) = self.clear_journal(scope, key, asked).await {
                tracing::warn!(%error, "the journal of a turn that is over was not dropped");
            }
        }
        if let Err(error) = self.close_turns(scope, journals, asked).await {
            tracing::warn!(%error, "the usage of an ended turn was not dropped");
        }
        Ok(Some(self.tidy(scope, asked, saved).await?))
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let query = query.clone();
        self.on_files(scope, move |files| files.list(&query)).await
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        let query = query.clone();
        self.on_files(scope, move |files| files.sessions(&query)).await
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        let id = id.clone();
        self.on_files(scope, move |files| files.children(&id)).await
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        let asked = Instant::now();
        let (files, deletion, watchers) = (self.files(scope)?, deletion.clone(), self.watchers.clone());
        let journals = Journals::of(&self.options, scope);
        let ledger = LedgerFile::of(&self.options, scope);
        let is_all = deletion == Deletion::Tenant;
        let session = match &deletion {
            Deletion::Session(session) => Some(session.clone()),
            Deletion::Snapshots(_) | Deletion::Tenant => None,
        };
        let find = move || {
            files.disk.create_folder(&files.folder.pointers())?;
            files.to_delete(deletion)
        };
        let ids = self.threads.write(find).await?;
        if is_all {
            self.under_lock(scope, asked, move |_, lock| {
                ledger.delete()?;
                journals.delete_all(lock)
            })
            .await?;
        } else if let Some(session) = session.clone() {
            self.under_lock(scope, asked, move |_, lock| {
                ledger.close_session(&session, &lock)?;
                journals.delete_session(&session, lock)
            })
            .await?;
        }
        self.under_lock(scope, asked, move |files, lock| {
            let deleted = files.delete_rows(&ids, &lock)?;
            for id in &deleted {
                watchers.report(&files.folder, id, None);
            }
            if let Some(session) = &session
                && files.damaged_pointer(session)?.is_some()
            {
                files.disk.remove(&files.folder.pointer(session)?)?;
            }
            if is_all {
                files.delete_rest()?;
            } else if !files.has_rows()? {
                files.disk.remove(&files.folder.tenant())?;
            }
            Ok(deleted.len() as u64)
        })
        .await
    }

    async fn tenants(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        let options = self.options.clone();
        let all = self.threads.read(move || tenants(&options)).await?;
        Ok(page_of_tenants(all, after))
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        let (store, query) = (self.clone(), query.clone());
        let threads = store.threads.clone();
        let find = move || {
            let FileStoreOptions { disk, root, .. } = &store.options;
            let markers = pending::read_markers(&store.markers, &**disk, root)?;
            Ok(Some(pending::page(&markers, |scope| store.files(scope), &query)))
        };
        threads.read(find).await
    }

    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream> {
        let Ok(files) = self.files(scope) else {
            return Some(Box::pin(futures::stream::empty()));
        };
        Some(self.watchers.watch(files, id.clone(), self.options.poll))
    }

    fn can_watch(&self) -> bool {
        true
    }

    fn journal(&self) -> Option<&dyn Journal> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn UsageLedger> {
        Some(self)
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn turn_locks(&self) -> Option<&dyn TurnLocks> {
        None
    }
}

everturn_core::opaque_debug!(FileStore, options.root);
