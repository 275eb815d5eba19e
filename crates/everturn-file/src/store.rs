//! The store itself.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use everturn_agent::store::{
    Cursor, Deletion, Detail, Journal, Mutation, Order, Page, PendingPage, PendingQuery, Precondition, Scope,
    SessionQuery, SessionStore, SessionSummary, SnapshotQuery, StatusStream, id_to_save,
};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::Result;

use crate::cache::Cache;
use crate::files::Files;
use crate::header::Header;
use crate::journal::Journals;
use crate::options::FileStoreOptions;
use crate::pending::{self, Marker};
use crate::queue::Queues;
use crate::watch::Watchers;

/// Keeps each snapshot as one readable JSON file.
///
/// The layout is the one Genkit's Go and JavaScript file stores write, so a folder can be continued by either side.
/// Saves of all processes that use this store exclude one another through a lock file per scope; a save is on the
/// device before it returns. Cloning gives another handle to the same store.
///
/// Each file holds the whole conversation, so disk use grows with the square of its length. Lists and the first turn of a
/// session ask the file system about every file of the scope, and read those that are new or changed since this store,
/// or a clone of it, last looked; for that it keeps a few hundred bytes of each row in memory. For long conversations and
/// many sessions take a database. What it promises is in the [crate](crate)'s text.
///
/// ```
/// use everturn_agent::store::{Scope, SessionStore};
/// use everturn_file::FileStore;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> everturn_core::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("everturn-doc-{}", std::process::id()));
/// let store = FileStore::open(&folder)?;
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
    /// Opens the store in a folder, which is created if it does not exist.
    ///
    /// # Errors
    /// What the file system reports if the folder cannot be created.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        Self::options(root).open()
    }

    /// Settings for a store in a folder.
    pub fn options(root: impl Into<PathBuf>) -> FileStoreOptions {
        FileStoreOptions::new(root.into())
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

    /// The folder the store is in.
    pub fn root(&self) -> &Path {
        &self.options.root
    }

    /// Does blocking work on a scope's files where it blocks nobody.
    pub(crate) async fn on_files<T: Send + 'static>(
        &self,
        scope: &Scope,
        work: impl FnOnce(Files) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let files = Files::of(self, scope)?;
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

    async fn save(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
    ) -> Result<Option<Snapshot>> {
        let id = id_to_save(id);
        let watchers = self.watchers.clone();
        self.on_files(scope, move |files| {
            files.save(&id, &precondition, &mutation, &watchers)
        })
        .await
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let query = query.clone();
        self.on_files(scope, move |files| {
            let mut headers = files.headers(&query.session)?;
            headers.retain(|header| query.orphaned || !header.orphaned);
            let page = page(headers, query.order, query.after.as_ref(), query.page_size());
            read_page(&files, page, query.detail)
        })
        .await
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        let query = query.clone();
        self.on_files(scope, move |files| {
            let tips = tips(files.all_headers()?);
            let page = page(tips, query.order, query.after.as_ref(), query.page_size());
            let rows = read_page(&files, page, Detail::Metadata)?;
            let summary = |latest: Snapshot| {
                Some(SessionSummary {
                    session_id: latest.session_id.clone()?,
                    latest,
                })
            };
            Ok(Page {
                items: rows.items.into_iter().filter_map(summary).collect(),
                next: rows.next,
            })
        })
        .await
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        let id = id.clone();
        self.on_files(scope, move |files| {
            let mut headers = files.all_headers()?;
            headers.retain(|header| header.parent_id.as_ref() == Some(&id));
            let count = headers.len();
            let page = page(headers, Order::Oldest, None, count);
            Ok(read_page(&files, page, Detail::Metadata)?.items)
        })
        .await
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        let (deletion, watchers) = (deletion.clone(), self.watchers.clone());
        let journals = Journals::of(&self.options, scope);
        self.on_files(scope, move |files| {
            if let Deletion::Session(session) = &deletion {
                journals.delete_session(&files, session)?;
            }
            let ids = match deletion {
                Deletion::Snapshots(ids) => ids,
                Deletion::Session(session) => files
                    .headers(&session)?
                    .into_iter()
                    .map(|header| header.snapshot_id.clone())
                    .collect(),
            };
            let deleted = files.delete(&ids)?;
            for id in &deleted {
                watchers.tell(&files.folder, id, None);
            }
            Ok(deleted.len() as u64)
        })
        .await
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        let (store, query) = (self.clone(), query.clone());
        tokio::task::spawn_blocking(move || pending::page(&store, &query).map(Some)).await?
    }

    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream> {
        let Ok(files) = Files::of(self, scope) else {
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

/// The latest row of each session that has one.
fn tips(headers: Vec<Arc<Header>>) -> Vec<Arc<Header>> {
    let mut tips = std::collections::HashMap::<SessionId, Arc<Header>>::new();
    for header in headers {
        let Some(session) = header.session_id.clone().filter(|_| !header.orphaned) else {
            continue;
        };
        match tips.get(&session) {
            Some(tip) if tip.position() >= header.position() => {}
            _ => {
                tips.insert(session, header);
            }
        }
    }
    tips.into_values().collect()
}

fn page(
    mut headers: Vec<Arc<Header>>,
    order: Order,
    after: Option<&Cursor>,
    size: usize,
) -> Page<Arc<Header>> {
    headers.sort_by(|one, other| match order {
        Order::Oldest => one.position().cmp(&other.position()),
        Order::Newest => other.position().cmp(&one.position()),
    });
    if let Some(after) = after {
        headers.retain(|header| match order {
            Order::Oldest => header.position() > after.position(),
            Order::Newest => header.position() < after.position(),
        });
    }
    let more = headers.len() > size;
    headers.truncate(size);
    let next = headers.last().filter(|_| more).map(|last| Cursor {
        created_at: last.created_at,
        snapshot_id: last.snapshot_id.clone(),
    });
    Page { items: headers, next }
}

/// Reads the rows of a page; one that was deleted meanwhile is left out.
fn read_page(files: &Files, page: Page<Arc<Header>>, detail: Detail) -> Result<Page<Snapshot>> {
    let mut items = Vec::with_capacity(page.items.len());
    for header in page.items {
        items.extend(files.read(&header.snapshot_id, detail)?);
    }
    Ok(Page {
        items,
        next: page.next,
    })
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore")
            .field("root", &self.options.root)
            .finish_non_exhaustive()
    }
}
