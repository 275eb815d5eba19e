//! The effect of resuming an earlier snapshot on the later ones.
//!
//! Writing a snapshot is one atomic step, and a rewind marks many. So the decision is written in a single
//! snapshot: the session's latest records which snapshots are kept until every other one is marked. Every
//! reader of the session's latest snapshot finds an unfinished rewind there and finishes it first.

use std::collections::HashSet;

use everturn_core::Result;

use crate::storage::snapshot::{Rewind, Transition};
use crate::storage::stored_session::StoredSession;
use crate::store::{Cursor, Detail, MAX_PAGE, Precondition, SnapshotQuery, tip_moved};
use crate::{Snapshot, SnapshotId};

/// What happens to the snapshots after a resumed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Timeline {
    /// The later snapshots stay as they are, and the next one begins a new branch.
    #[default]
    Branching,
    /// The later snapshots become [`orphaned`](crate::Snapshot::orphaned): they are kept, and listed only on
    /// request.
    ///
    /// This happens with the first snapshot after the resumption. It is written first, as the session's new
    /// tip, and records that the other snapshots are yet to be marked. So nothing changes if the turn fails,
    /// and whenever the process dies, a client that resumes the session finds the old tip or the new one. The
    /// next turn on the session, or the next listing of it, writes the missing marks.
    ///
    /// With [`ContentAddressed`](crate::SnapshotIds::ContentAddressed) ids a turn may reach a state that is
    /// already stored. Then the existing snapshot becomes the tip: the snapshots that lead to it are kept,
    /// even if they were superseded, and all others become superseded. Later snapshots continue its
    /// numbering.
    ///
    /// Resuming a superseded snapshot recovers it and the snapshots that lead to it, and supersedes those
    /// that had replaced them.
    Linear,
}

impl StoredSession {
    /// Reads the session's latest snapshot, after finishing a rewind that is unfinished.
    ///
    /// # Errors
    /// The store's own errors; `DATA_LOSS` if the unfinished rewind cannot be read.
    pub(crate) async fn tip(&self, detail: Detail) -> Result<Option<Snapshot>> {
        let tenant = self.tenant();
        // After a rewind is finished the latest may be another snapshot, with another rewind.
        loop {
            let latest = tenant.store().latest(tenant.scope(), self.id(), detail).await?;
            let Some(latest) = latest else {
                return Ok(None);
            };
            let Some(rewind) = latest.unfinished_rewind()? else {
                return Ok(Some(latest));
            };
            // Boxed because the future is large and seldom needed.
            Box::pin(self.finish_rewind(rewind, &latest)).await?;
        }
    }

    /// Returns the rewind that keeps the snapshots leading to `to`. They part from the currently kept ones at
    /// the first of them that is not superseded.
    pub(crate) async fn rewind_to(&self, to: &SnapshotId) -> Result<Rewind> {
        let mut seen = HashSet::new();
        let mut next = Some(to.clone());
        let mut fork = None;
        // Stored parents may form a cycle, which must not be followed forever.
        while let Some(id) = next.take().filter(|id| seen.insert(id.clone())) {
            let Some(ancestor) = self.tenant().get(&id, Detail::Metadata).await? else {
                break;
            };
            if ancestor.orphaned {
                next = ancestor.parent_id;
            } else {
                fork = Some(Cursor::at(&ancestor));
            }
        }
        Ok(Rewind::new(to.clone(), fork))
    }

    /// Keeps the snapshots that lead to `snapshot`, which exists already, and supersedes those after it.
    /// `tip` is the latest snapshot known to the caller.
    ///
    /// # Errors
    /// `ABORTED` if `tip` is not the latest snapshot any more; the store's own errors.
    pub(crate) async fn move_tip_to(&self, snapshot: &Snapshot, tip: &SnapshotId) -> Result<()> {
        // Reading the tip also finishes an earlier rewind, of which two must not overlap.
        let latest = self.tip(Detail::Metadata).await?;
        let latest_id = latest.as_ref().map(|latest| &latest.snapshot_id);
        let Some(tip) = latest.as_ref().filter(|latest| latest.snapshot_id == *tip) else {
            return Err(tip_moved(self.id(), Some(tip), latest_id));
        };
        let rewind = self.rewind_to(&snapshot.snapshot_id).await?;
        // The decision must be in the snapshot that is then the session's latest.
        let recovers = snapshot.position() > tip.position();
        let bearer = if recovers { snapshot } else { tip };
        let decide = Transition::DecideRewind {
            rewind: rewind.clone(),
            recovers,
        };
        // Compared inside the commit: a turn elsewhere may have moved the tip since it was read.
        let at_tip = Precondition::Tip(Some(tip.snapshot_id.clone()));
        let decided = self
            .tenant()
            .commit(&bearer.snapshot_id, at_tip, decide, &[])
            .await?;
        match decided {
            Some(bearer) => self.finish_rewind(&rewind, &bearer).await,
            None => Err(tip_moved(self.id(), Some(&tip.snapshot_id), None)),
        }
    }

    /// Marks every snapshot that the unfinished rewind of the session's latest snapshot, `tip`, supersedes.
    ///
    /// All readers that find the rewind make the same marks, so several may do it at once. A later snapshot
    /// is not touched: its writer had finished this rewind first.
    pub(crate) async fn finish_rewind(&self, rewind: &Rewind, tip: &Snapshot) -> Result<()> {
        let snapshots = self.after(rewind.fork(), tip).await?;
        let kept = rewind.kept(&snapshots);
        let is_kept = |snapshot: &Snapshot| {
            kept.as_ref()
                .map_or(!snapshot.orphaned, |kept| kept.contains(&snapshot.snapshot_id))
        };
        let others = || {
            snapshots
                .iter()
                .filter(|snapshot| snapshot.snapshot_id != tip.snapshot_id)
        };
        // Snapshots are recovered before others are superseded: in between there is a branch, but nothing is
        // lost.
        let recovered = others()
            .filter(|snapshot| is_kept(snapshot) && (snapshot.orphaned || snapshot.has_unfinished_rewind()));
        let left_behind = others().filter(|snapshot| !is_kept(snapshot) && !snapshot.orphaned);
        for (snapshot, orphaned) in recovered
            .map(|snapshot| (snapshot, false))
            .chain(left_behind.map(|snapshot| (snapshot, true)))
        {
            if !self.is_unfinished(rewind, tip).await? {
                return Ok(());
            }
            let orphan = Transition::Orphan { orphaned };
            self.tenant().change(&snapshot.snapshot_id, orphan).await?;
        }
        let finish = Transition::FinishRewind {
            rewind: rewind.clone(),
            orphaned: !is_kept(tip),
        };
        self.tenant().change(&tip.snapshot_id, finish).await.map(drop)
    }

    /// Returns whether the rewind is still unfinished: another reader may have finished it, and the session
    /// may have moved on since.
    async fn is_unfinished(&self, rewind: &Rewind, tip: &Snapshot) -> Result<bool> {
        match self.tenant().get(&tip.snapshot_id, Detail::Metadata).await? {
            Some(tip) => Ok(tip.unfinished_rewind()? == Some(rewind)),
            None => Ok(false),
        }
    }

    /// Returns the session's snapshots after this one, or all, up to the tip.
    async fn after(&self, fork: Option<&Cursor>, tip: &Snapshot) -> Result<Vec<Snapshot>> {
        let mut query = SnapshotQuery::of(self.id().clone())
            .oldest_first()
            .with_orphaned()
            .limit(MAX_PAGE);
        query.after = fork.cloned();
        let mut found = Vec::new();
        loop {
            let page = self.tenant().list(&query).await?;
            let count = page.items.len();
            found.extend(
                page.items
                    .into_iter()
                    .take_while(|snapshot| snapshot.position() <= tip.position()),
            );
            match page.next {
                Some(next) if count > 0 && next.position() < tip.position() => query.after = Some(next),
                _ => return Ok(found),
            }
        }
    }
}
