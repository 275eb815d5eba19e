//! One atomic read-modify-write of a row.
//!
//! The scope's lock is held as briefly as can be, for everybody waits for it. A row is computed and on the device before the
//! lock is taken, and computed again if what it was computed from has changed by then. It gets its name under the lock;
//! the name is forced to the device after. Whoever builds on the row until then forces the same folder before it returns.

use std::path::Path;

use everturn_agent::store::{Detail, Mutation, Precondition, admit};
use everturn_agent::{Snapshot, SnapshotId};
use everturn_core::Result;

use crate::files::{Files, encode};
use crate::pending;
use crate::row;
use crate::staged::Staged;
use crate::watch::Watchers;

/// What a mutation made of what it found.
struct Draft {
    found: Option<Vec<u8>>,
    before: Option<Snapshot>,
    /// `None` if there is nothing to write.
    after: Option<(Snapshot, Staged)>,
}

impl Files {
    /// One atomic read-modify-write. Returns the row as written, or `None` if nothing was.
    pub(crate) fn save(
        &self,
        id: &SnapshotId,
        precondition: &Precondition,
        mutation: &Mutation,
        watchers: &Watchers,
    ) -> Result<Option<Snapshot>> {
        let path = self.folder.row(id)?;
        self.disk.create_folder(&self.folder.pointers())?;
        let draft = self.draft(id, &path, mutation);

        let lock = self.lock()?;
        let draft = match draft {
            Ok(draft) if self.disk.read(&path)? == draft.found => draft,
            // An error too holds only for what was found.
            _ => self.draft(id, &path, mutation)?,
        };
        let Some((row, staged)) = draft.after else {
            return Ok(None);
        };
        match &draft.before {
            None => self.advance(&row, precondition)?,
            Some(before) => self.change(before, &row, precondition)?,
        }
        let (begins, ends) = pending::changes(draft.before.as_ref(), &row);
        if begins {
            self.mark(id)?;
        }
        staged.publish(&path)?;
        // Under the lock, so that watchers hear of changes in their order.
        if draft.before.is_none_or(|before| before.status != row.status) {
            watchers.tell(&self.folder, id, Some(row.status));
        }
        drop(lock);

        self.disk.sync_folder(self.folder.path())?;
        if ends {
            // Failing to is no harm: a stale mark is noticed.
            let _ = self.unmark_stale(id);
        }
        self.prune(&row)?;
        Ok(Some(row))
    }

    fn draft(&self, id: &SnapshotId, path: &Path, mutation: &Mutation) -> Result<Draft> {
        let found = self.disk.read(path)?;
        let before = found
            .as_deref()
            .map(|content| row::parse(path, content, Detail::Whole));
        let before = before.transpose()?;
        let after = match mutation(before.as_ref())? {
            Some(row) => {
                let row = admit(id, before.as_ref(), row)?;
                let staged = Staged::beside(&self.disk, path, &encode(&row)?)?;
                Some((row, staged))
            }
            None => None,
        };
        Ok(Draft { found, before, after })
    }

    /// Moves the session's pointer to a new row if it sorts ahead.
    ///
    /// The pointer goes first: should the process die before the row is there, the pointer names a row that does not
    /// exist and the next look-up finds the latest by scanning. The other way round a row could be there, and later
    /// be built upon, that no look-up by session ever finds.
    fn advance(&self, row: &Snapshot, precondition: &Precondition) -> Result<()> {
        let Some(session) = &row.session_id else {
            return Ok(());
        };
        let tip = self.tip(session)?;
        precondition.check(session, tip.as_ref().map(|tip| &tip.snapshot_id))?;
        if !row.orphaned && tip.is_none_or(|tip| row.position() > tip.position()) {
            self.point(session, &row.snapshot_id, row.created_at)?;
        }
        Ok(())
    }

    /// Prepares for a row that is there to be rewritten. Where it is left behind or recovered by that, the next look-up
    /// finds the session's latest row by scanning.
    fn change(&self, before: &Snapshot, row: &Snapshot, precondition: &Precondition) -> Result<()> {
        let Some(session) = &row.session_id else {
            return Ok(());
        };
        if *precondition != Precondition::None {
            let tip = self.tip(session)?;
            precondition.check(session, tip.as_ref().map(|tip| &tip.snapshot_id))?;
        }
        if before.orphaned == row.orphaned {
            return Ok(());
        }
        let pointer = self.folder.pointer(session)?;
        if self.disk.read(&pointer)?.is_some() {
            self.disk.remove(&pointer)?;
        }
        Ok(())
    }

    /// Deletes the ancestors of a row beyond the longest line that is kept, the row included.
    fn prune(&self, row: &Snapshot) -> Result<()> {
        let Some(max_chain) = self.max_chain else {
            return Ok(());
        };
        let _lock = self.lock()?;
        let mut seen = std::collections::HashSet::from([row.snapshot_id.clone()]);
        let mut next = row.parent_id.clone();
        while let Some(id) = &next
            && seen.insert(id.clone())
        {
            // A parent of a name that no row can have is not here.
            let Ok(path) = self.folder.row(id) else {
                break;
            };
            let Some(ancestor) = self.glance(&path)? else {
                break;
            };
            if seen.len() > max_chain {
                self.remove(&path)?;
            }
            next.clone_from(&ancestor.parent_id);
        }
        Ok(())
    }
}
