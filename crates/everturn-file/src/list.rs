//! Listings: the snapshots of a session, the sessions of a scope, the children of a snapshot.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::{
    Cursor, Detail, Order, Page, Scope, SessionQuery, SessionSummary, SnapshotQuery,
};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::Result;

use crate::files::Files;
use crate::journal::Journals;
use crate::layout::Folder;
use crate::options::FileStoreOptions;
use crate::row::Header;
use crate::usage_ledger::LedgerFile;
use crate::write::TenantName;

impl Files {
    /// Lists one page of a session's snapshots.
    pub(crate) fn list(&self, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let mut headers = self.headers(&query.session)?;
        headers.retain(|header| query.orphaned || !header.orphaned);
        let page = page(headers, query.order, query.after.as_ref(), query.page_size());
        self.read_page(page, query.detail)
    }

    /// Lists one page of the scope's sessions.
    pub(crate) fn sessions(&self, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        let tips = tips(self.all_headers()?);
        let page = page(tips, query.order, query.after.as_ref(), query.page_size());
        let rows = self.read_page(page, Detail::Metadata)?;
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
    }

    /// Lists the snapshots that name this one as their parent, oldest first.
    pub(crate) fn children(&self, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        let headers = self.headers_after(id)?;
        let count = headers.len();
        let page = page(headers, Order::Oldest, None, count);
        Ok(self.read_page(page, Detail::Metadata)?.items)
    }

    /// Reads the rows of a page. A row that was deleted meanwhile is left out.
    fn read_page(&self, page: Page<Arc<Header>>, detail: Detail) -> Result<Page<Snapshot>> {
        let mut items = Vec::with_capacity(page.items.len());
        for header in page.items {
            items.extend(self.read(&header.snapshot_id, detail)?);
        }
        Ok(Page {
            items,
            next: page.next,
        })
    }
}

/// Returns the header of each session's tip.
fn tips(headers: Vec<Arc<Header>>) -> Vec<Arc<Header>> {
    let mut tips = HashMap::<SessionId, Arc<Header>>::new();
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

/// Sorts headers and cuts a page from them.
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

/// Returns all tenants that have rows, journals or usage.
pub(crate) fn tenants(options: &FileStoreOptions) -> Result<Vec<Scope>> {
    let mut found = Vec::new();
    let mut waiting: Vec<(PathBuf, String)> = subfolders(options, &options.root, "")?;
    while let Some((folder, name)) = waiting.pop() {
        waiting.extend(subfolders(options, &folder, &format!("{name}/"))?);
        let scope = Scope::new(name);
        let files = options.disk.list(&folder)?;
        let has_rows = files
            .iter()
            .any(|path| path.extension().is_some_and(|end| end == "json"));
        if has_rows || Journals::of(options, &scope).has_any()? || LedgerFile::of(options, &scope).exists()? {
            found.push(named(options, scope)?);
        }
    }
    Ok(found)
}

/// Adds the readable name of a tenant, if it is kept.
fn named(options: &FileStoreOptions, scope: Scope) -> Result<Scope> {
    let content = options.disk.read(&Folder::of(&options.root, &scope)?.tenant())?;
    // A name that cannot be read is none.
    let kept = content.and_then(|content| serde_json::from_slice::<TenantName>(&content).ok());
    Ok(match kept {
        Some(kept) => scope.with_tenant(kept.tenant),
        None => scope,
    })
}

/// Returns the folders that may be tenants' in a folder, with their names after a prefix.
fn subfolders(options: &FileStoreOptions, folder: &Path, prefix: &str) -> Result<Vec<(PathBuf, String)>> {
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        // The store's own folders begin with a dot.
        let name = (!name.starts_with('.')).then(|| format!("{prefix}{name}"))?;
        Some((path, name))
    };
    Ok(options
        .disk
        .folders(folder)?
        .into_iter()
        .filter_map(named)
        .collect())
}
