//! Leaving behind what came after, so that a process may die at any point of it.
//!
//! A row is one atomic step and the marks on the rows that are left behind are many. So the decision is a single row: the
//! session's latest says which line is kept until every mark is made. Whoever reads the session's latest row finds an
//! unfinished rewind there and finishes it before going on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use everturn_core::Result;
use serde::{Deserialize, Serialize};

use crate::store::{
    Cursor, Detail, MAX_PAGE, Mutation, Precondition, Scope, SessionStore, SnapshotQuery, tip_moved,
};
use crate::{SessionId, Snapshot, SnapshotId};

/// Under which key a session's latest row says that a rewind is not finished.
const UNFINISHED_REWIND: &str = "unfinishedRewind";

/// What a rewind keeps: the line from the session's beginning to a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rewind {
    /// The row at the end of the line.
    keep: SnapshotId,
    /// Where the line leaves the one that was kept before; nothing changes up to there. `None` is the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fork: Option<Cursor>,
}

impl Rewind {
    /// The rewind that a row has not finished.
    pub(crate) fn of(row: &Snapshot) -> Option<Self> {
        Self::deserialize(row.extra.get(UNFINISHED_REWIND)?).ok()
    }

    /// The same, keeping the line to another row that goes on from this one.
    pub(crate) fn going_on_to(self, row: &SnapshotId) -> Self {
        Self {
            keep: row.clone(),
            ..self
        }
    }

    pub(crate) fn put(&self, row: &mut Snapshot) {
        let rewind = serde_json::to_value(self).expect("ids and times are plain data");
        row.extra.insert(UNFINISHED_REWIND.to_owned(), rewind);
    }

    /// Takes the rewind out of a row; says whether there was one.
    pub(crate) fn clear(row: &mut Snapshot) -> bool {
        row.extra.shift_remove(UNFINISHED_REWIND).is_some()
    }

    /// Which of the rows after the fork are kept; `None` if the row at the end of the line is not there any more.
    fn line<'a>(&self, rows: &'a [Snapshot]) -> Option<HashSet<&'a SnapshotId>> {
        let parents: HashMap<&SnapshotId, Option<&SnapshotId>> = rows
            .iter()
            .map(|row| (&row.snapshot_id, row.parent_id.as_ref()))
            .collect();
        let ends_at_the_fork = self
            .fork
            .as_ref()
            .is_some_and(|fork| fork.snapshot_id == self.keep);
        if !ends_at_the_fork && !parents.contains_key(&self.keep) {
            return None;
        }
        let mut line = HashSet::new();
        let mut next = Some(&self.keep);
        while let Some((id, parent)) = next.and_then(|id| parents.get_key_value(id)) {
            // Rows that form a circle were not written here, but must not be followed for ever.
            if !line.insert(*id) {
                break;
            }
            next = *parent;
        }
        Some(line)
    }
}

/// One session's rows.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) store: &'a dyn SessionStore,
    pub(crate) scope: &'a Scope,
    pub(crate) session: &'a SessionId,
}

impl Line<'_> {
    /// The session's latest row, after whatever rewind was not finished.
    pub(crate) async fn latest(self, detail: Detail) -> Result<Option<Snapshot>> {
        loop {
            let Some(latest) = self.store.latest(self.scope, self.session, detail).await? else {
                return Ok(None);
            };
            match Rewind::of(&latest) {
                // In a box, because it is large and seldom there.
                Some(rewind) => Box::pin(self.finish(&rewind, &latest)).await?,
                None => return Ok(Some(latest)),
            }
        }
    }

    /// The rewind that keeps the line to a row: it leaves the present one where its first row is that was not left behind.
    pub(crate) async fn back_to(self, row: &SnapshotId) -> Result<Rewind> {
        let mut seen = HashSet::new();
        let mut next = Some(row.clone());
        let mut fork = None;
        while let Some(id) = next.take().filter(|id| seen.insert(id.clone())) {
            let Some(ancestor) = self.store.get(self.scope, &id, Detail::Metadata).await? else {
                break;
            };
            if ancestor.orphaned {
                next = ancestor.parent_id;
            } else {
                fork = Some(Cursor::at(&ancestor));
            }
        }
        Ok(Rewind {
            keep: row.clone(),
            fork,
        })
    }

    /// Makes the line to `row`, which is there already, the session's; `tip` is the latest row that the caller knows.
    ///
    /// # Errors
    /// `ABORTED` if that is not the latest row any more; what the store fails with.
    pub(crate) async fn go_to(self, row: &Snapshot, tip: &SnapshotId) -> Result<()> {
        let latest = self.latest(Detail::Metadata).await?;
        let latest_id = latest.as_ref().map(|latest| &latest.snapshot_id);
        let Some(tip) = latest.as_ref().filter(|latest| latest.snapshot_id == *tip) else {
            return Err(tip_moved(self.session, Some(tip), latest_id));
        };
        let rewind = self.back_to(&row.snapshot_id).await?;
        // The decision must be in what is then the session's latest row.
        let recovers = row.position() > tip.position();
        let bearer = if recovers { row } else { tip };
        let decided = rewind.clone();
        let decision: Mutation = Arc::new(move |bearer| {
            Ok(bearer.map(|bearer| {
                let mut bearer = bearer.clone();
                bearer.orphaned &= !recovers;
                decided.put(&mut bearer);
                bearer
            }))
        });
        let decided = self
            .store
            .save(
                self.scope,
                Some(&bearer.snapshot_id),
                Precondition::Tip(Some(tip.snapshot_id.clone())),
                decision,
            )
            .await?;
        match decided {
            Some(bearer) => self.finish(&rewind, &bearer).await,
            None => Err(tip_moved(self.session, Some(&tip.snapshot_id), None)),
        }
    }

    /// Makes every mark of a rewind that the session's latest row, `tip`, has not finished.
    ///
    /// Whoever comes to the same row does the same, so several may do it at once. A row that came since is not touched: it
    /// was written by somebody who had finished this first.
    pub(crate) async fn finish(self, rewind: &Rewind, tip: &Snapshot) -> Result<()> {
        let rows = self.after(rewind.fork.as_ref(), tip).await?;
        let line = rewind.line(&rows);
        let is_kept = |row: &Snapshot| {
            line.as_ref()
                .map_or(!row.orphaned, |line| line.contains(&row.snapshot_id))
        };
        let others = || rows.iter().filter(|row| row.snapshot_id != tip.snapshot_id);
        // First what is to be found again, then what is to be hidden: in between there is a branch, and nothing is lost.
        let recovered = others().filter(|row| is_kept(row) && (row.orphaned || Rewind::of(row).is_some()));
        let left_behind = others().filter(|row| !is_kept(row) && !row.orphaned);
        for (row, orphaned) in recovered
            .map(|row| (row, false))
            .chain(left_behind.map(|row| (row, true)))
        {
            if !self.is_unfinished(rewind, tip).await? {
                return Ok(());
            }
            self.mark(&row.snapshot_id, None, orphaned).await?;
        }
        self.mark(&tip.snapshot_id, Some(rewind), !is_kept(tip)).await
    }

    /// Whether nobody else has finished the rewind meanwhile, and perhaps gone elsewhere since.
    async fn is_unfinished(self, rewind: &Rewind, tip: &Snapshot) -> Result<bool> {
        let tip = self
            .store
            .get(self.scope, &tip.snapshot_id, Detail::Metadata)
            .await?;
        Ok(tip.and_then(|tip| Rewind::of(&tip)).as_ref() == Some(rewind))
    }

    /// The session's rows after this one, or all, up to the tip.
    async fn after(self, fork: Option<&Cursor>, tip: &Snapshot) -> Result<Vec<Snapshot>> {
        let mut query = SnapshotQuery::of(self.session.clone())
            .oldest_first()
            .with_orphaned()
            .limit(MAX_PAGE);
        query.after = fork.cloned();
        let mut found = Vec::new();
        loop {
            let page = self.store.list(self.scope, &query).await?;
            let count = page.items.len();
            found.extend(
                page.items
                    .into_iter()
                    .take_while(|row| row.position() <= tip.position()),
            );
            match page.next {
                Some(next) if count > 0 && next.position() < tip.position() => query.after = Some(next),
                _ => return Ok(found),
            }
        }
    }

    /// Marks a row, or takes the mark from it, and takes the rewind from it that it has not finished: any, or only this one.
    async fn mark(self, id: &SnapshotId, finished: Option<&Rewind>, orphaned: bool) -> Result<()> {
        let finished = finished.cloned();
        let mark: Mutation = Arc::new(move |row| {
            let Some(row) = row.filter(|row| finished.is_none() || Rewind::of(row) == finished) else {
                return Ok(None);
            };
            let mut marked = Snapshot {
                orphaned,
                ..row.clone()
            };
            let changed = Rewind::clear(&mut marked) || row.orphaned != orphaned;
            Ok(changed.then_some(marked))
        });
        self.store
            .save(self.scope, Some(id), Precondition::None, mark)
            .await?;
        Ok(())
    }
}
