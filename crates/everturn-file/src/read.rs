//! Reading rows, their headers and the pointers to tips.

use std::path::Path;
use std::sync::Arc;

use everturn_agent::store::{Detail, Precondition};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::files::Files;
use crate::row::{self, Header};

/// The file that names a session's tip.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pointer {
    current_snapshot_id: SnapshotId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current_created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
}

impl Files {
    /// Reads the row of an id.
    pub(crate) fn read(&self, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        let path = self.folder.row(id)?;
        let content = self.disk.read(&path)?;
        content
            .map(|content| row::parse(&path, &content, detail))
            .transpose()
    }

    /// Reads the session's tip, for callers that do not hold the lock.
    ///
    /// A pointer that names no kept row of the session may belong to a save that is under way. It is therefore checked again,
    /// and repaired, only under the lock: a reader that repaired it earlier would hide the new row from the next writer.
    pub(crate) fn latest(&self, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        let pointer = self.pointer(session)?;
        if let Some(id) = &pointer
            && let Some(row) = self.read(id, detail)?
            && row.session_id.as_ref() == Some(session)
            && !row.orphaned
        {
            return Ok(Some(row));
        }
        // Fills the cache of headers before the lock is taken, so that writers wait less.
        let seen = self.greatest(session)?;
        if pointer.is_none() && seen.is_none() {
            return Ok(None);
        }
        let read = |latest: Option<Arc<Header>>| {
            latest.map_or(Ok(None), |latest| self.read(&latest.snapshot_id, detail))
        };
        match self.lock() {
            Ok(_lock) => read(self.tip(session)?),
            // There is no folder yet, or it is read-only.
            Err(_) => read(seen),
        }
    }

    /// Returns the header of the session's tip, for callers that hold the lock. A pointer that does not name the tip is
    /// repaired.
    pub(crate) fn tip(&self, session: &SessionId) -> Result<Option<Arc<Header>>> {
        if let Some(id) = self.pointer(session)?
            && let Some(row) = self.header(&id)?
            && row.session_id.as_ref() == Some(session)
            && !row.orphaned
        {
            return Ok(Some(row));
        }
        let greatest = self.greatest(session)?;
        if let Some(greatest) = &greatest {
            // A pointer only saves a scan: if it cannot be repaired, the next reader scans again.
            let _ = self.point(session, &greatest.snapshot_id, greatest.created_at);
        }
        Ok(greatest)
    }

    /// Returns the row that a precondition asks for, for callers that hold the lock. `written` is the row that they write.
    pub(crate) fn found(
        &self,
        session: &SessionId,
        precondition: &Precondition,
        written: &SnapshotId,
    ) -> Result<Option<SnapshotId>> {
        let Some(tip) = self.tip(session)? else {
            return Ok(None);
        };
        let continued = match precondition {
            Precondition::None | Precondition::Tip(_) => return Ok(Some(tip.snapshot_id.clone())),
            // Nothing comes after the tip, so it has no successor and no other file is looked at.
            Precondition::Unfollowed {
                snapshot: Some(id), ..
            } if *id == tip.snapshot_id => return Ok(Some(id.clone())),
            Precondition::Unfollowed { snapshot, .. } => snapshot.as_ref(),
        };
        let mut kept = self.headers(session)?;
        kept.retain(|header| !header.orphaned);
        let continued = match continued {
            Some(id) => match kept.iter().find(|header| header.snapshot_id == *id) {
                Some(continued) => Some(Arc::clone(continued)),
                None => return Ok(None),
            },
            None => None,
        };
        let follows = |header: &Header| {
            continued.as_ref().is_none_or(|continued| {
                header.parent_id.as_ref() == Some(&continued.snapshot_id)
                    && header.position() > continued.position()
            })
        };
        let successor = kept.into_iter().find(|header| {
            header.snapshot_id != *written
                && precondition.counts(&header.snapshot_id, header.status)
                && follows(header)
        });
        Ok(successor.or(continued).map(|header| header.snapshot_id.clone()))
    }

    /// Returns the id in the session's pointer, unless no row can have that id.
    pub(crate) fn pointer(&self, session: &SessionId) -> Result<Option<SnapshotId>> {
        let content = self.disk.read(&self.folder.pointer(session)?)?;
        // A pointer that cannot be parsed is as good as none.
        let pointer: Option<Pointer> = content.and_then(|content| serde_json::from_slice(&content).ok());
        let id = pointer.map(|pointer| pointer.current_snapshot_id);
        Ok(id.filter(|id| self.folder.row(id).is_ok()))
    }

    /// Returns the header of the session's last row that is not orphaned, by scanning.
    fn greatest(&self, session: &SessionId) -> Result<Option<Arc<Header>>> {
        let mut kept = self.headers(session)?;
        kept.retain(|header| !header.orphaned);
        Ok(kept
            .into_iter()
            .max_by(|one, other| one.position().cmp(&other.position())))
    }

    /// Returns the headers of a session's rows, unordered. Files that are not snapshots are skipped.
    pub(crate) fn headers(&self, session: &SessionId) -> Result<Vec<Arc<Header>>> {
        let mut headers = self.all_headers()?;
        headers.retain(|header| header.session_id.as_ref() == Some(session));
        Ok(headers)
    }

    /// Returns the headers of the scope's rows, unordered.
    pub(crate) fn all_headers(&self) -> Result<Vec<Arc<Header>>> {
        let parse = |path: &Path, content: &[u8]| Header::parse(&self.folder, path, content);
        Ok(self.headers.read_all(&*self.disk, self.folder.path(), parse)?)
    }

    /// Returns the header of the row with an id.
    ///
    /// # Errors
    /// `DATA_LOSS` if the row's file is not a snapshot.
    pub(crate) fn header(&self, id: &SnapshotId) -> Result<Option<Arc<Header>>> {
        if let Some(header) = self.header_in(&self.folder.row(id)?)? {
            return Ok(Some(header));
        }
        Ok(self.read(id, Detail::Metadata)?.map(|row| Arc::new(row.into())))
    }

    /// Returns the header in a file; `None` if there is no such file or it is not a row.
    pub(crate) fn header_in(&self, path: &Path) -> Result<Option<Arc<Header>>> {
        let parse = |path: &Path, content: &[u8]| Header::parse(&self.folder, path, content);
        Ok(self.headers.read(&*self.disk, path, parse)?)
    }

    /// Points the session at a row.
    pub(crate) fn point(&self, session: &SessionId, id: &SnapshotId, created_at: Timestamp) -> Result<()> {
        let pointer = Pointer {
            current_snapshot_id: id.clone(),
            current_created_at: Some(created_at),
            updated_at: Some(Timestamp::now()),
        };
        self.put(&self.folder.pointer(session)?, &pointer)
    }
}
