//! Pages of whole snapshots that are bounded by their size.

use std::collections::BTreeMap;

use everturn_ai::json_heap_size;
use everturn_core::Result;

use super::Archive;
use super::look_up::excerpt;
use crate::store::{Cursor, Detail, Page, SnapshotQuery};
use crate::{Artifact, Snapshot, SnapshotId};

/// How many bytes of memory the snapshots of one page may take together. A page has at least one snapshot,
/// whatever its size.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

impl Archive {
    /// Returns one page like [`Archive::list`], which ends early if its snapshots are large.
    ///
    /// As JSON, every snapshot repeats the whole conversation, so the page of a long session would be many
    /// times as large as the session. Snapshots are read one by one, because the size of one says nothing
    /// about the next.
    pub(crate) async fn bounded_page(&self, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        if query.detail == Detail::Metadata {
            return self.list(query).await;
        }
        let mut rows = query.clone();
        rows.detail = Detail::Metadata;
        let rows = self.list(&rows).await?;
        let (mut items, mut bytes) = (Vec::new(), 0);
        for row in rows.items {
            // It may have been deleted meanwhile.
            let Some(snapshot) = self.tenant.get(&row.snapshot_id, Detail::Whole).await? else {
                continue;
            };
            let snapshot = self.show(snapshot)?;
            bytes += bytes_of(&snapshot);
            if !items.is_empty() && bytes > PAGE_BYTES {
                let next = items.last().map(Cursor::at);
                return Ok(Page { items, next });
            }
            items.push(snapshot);
        }
        Ok(Page {
            items,
            next: rows.next,
        })
    }

    /// Returns one page of snapshots without their states, and excerpts of them. Their states are read a
    /// bounded page at a time.
    pub(super) async fn excerpted_page(
        &self,
        query: &SnapshotQuery,
    ) -> Result<(Page<Snapshot>, BTreeMap<SnapshotId, String>)> {
        let mut part = query.clone().whole();
        let (mut items, mut excerpts) = (Vec::new(), BTreeMap::new());
        loop {
            part.limit = query.page_size() - items.len();
            let read = self.bounded_page(&part).await?;
            excerpts.extend(read.items.iter().filter_map(excerpt));
            items.extend(read.items.into_iter().map(|item| Detail::Metadata.cut(item)));
            let next = read.next;
            if next.is_none() || items.len() >= query.page_size() {
                return Ok((Page { items, next }, excerpts));
            }
            part.after = next;
        }
    }
}

/// Returns about how many bytes of memory a snapshot's state takes.
fn bytes_of(snapshot: &Snapshot) -> usize {
    let Some(state) = &snapshot.state else {
        return 0;
    };
    let custom = state.custom.as_deref().map_or(0, json_heap_size);
    let artifacts: usize = state.artifacts.iter().map(Artifact::heap_size).sum();
    state.messages.heap_size() + custom + artifacts
}
