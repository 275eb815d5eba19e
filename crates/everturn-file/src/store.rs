//! The store: every method of the trait, as blocking work on files.

use std::fmt;
use std::path::Path;

use async_trait::async_trait;
use everturn_agent::store::{
    Deletion, Detail, Journal, JournalKey, Mutation, Page, PendingPage, PendingQuery, Precondition, Scope,
    SessionQuery, SessionStore, SessionSummary, SnapshotQuery, StatusStream, drop_journals, id_to_save,
};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::Result;

use crate::cache::Cache;
use crate::files::{Files, Queues};
use crate::journal::Journals;
use crate::layout::Folder;
use crate::options::FileStoreOptions;
use crate::pending::{self, Marker};
use crate::row::Header;
use crate::watch::Watchers;

/// A session store that keeps each snapshot as one readable JSON file.
///
/// The layout is the one that Genkit's Go and JavaScript file stores write, so either side can continue the other's folder.
/// Saves of all processes exclude one another through a lock file per scope, and a save is on the device before it returns.
/// A clone is another handle to the same store.
///
/// Each file holds the whole conversation, so disk use grows with the square of the conversation's length. Listings and the
/// first turn of a session ask the file system about every file of the scope, and read the files that are new or changed
/// since this store, or a clone of it, last read them; for that the store keeps a few hundred bytes of each snapshot in
/// memory. Use a database for long conversations and many sessions. The store's guarantees are listed in the
/// [crate's documentation](crate).
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
    fn files(&self, scope: &Scope) -> Result<Files> {
        let options = &self.options;
        Ok(Files {
            root: options.root.clone(),
            scope: scope.clone(),
            folder: Folder::of(&options.root, scope)?,
            disk: options.disk.clone(),
            max_chain: options.max_chain,
            headers: self.headers.clone(),
            queues: self.queues.clone(),
        })
    }

    /// Runs blocking work on a scope's files on a thread that may block.
    pub(crate) async fn on_files<T: Send + 'static>(
        &self,
        scope: &Scope,
        work: impl FnOnce(Files) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let files = self.files(scope)?;
        tokio::task::spawn_blocking(move || work(files)).await?
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
        let id = id_to_save(id);
        let watchers = self.watchers.clone();
        let saved = self
            .on_files(scope, move |files| {
                files.save(&id, &precondition, &mutation, &watchers)
            })
            .await?;
        if saved.is_some() {
            drop_journals(self, scope, journals).await;
        }
        Ok(saved)
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
        let (deletion, watchers) = (deletion.clone(), self.watchers.clone());
        let journals = Journals::of(&self.options, scope);
        self.on_files(scope, move |files| {
            let deleted = files.delete(deletion, &journals)?;
            for id in &deleted {
                watchers.tell(&files.folder, id, None);
            }
            Ok(deleted.len() as u64)
        })
        .await
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        let (store, query) = (self.clone(), query.clone());
        tokio::task::spawn_blocking(move || {
            let FileStoreOptions { disk, root, .. } = &store.options;
            let markers = pending::read_markers(&store.markers, &**disk, root)?;
            Ok(Some(pending::page(&markers, |scope| store.files(scope), &query)))
        })
        .await?
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
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore")
            .field("root", &self.options.root)
            .finish_non_exhaustive()
    }
}
