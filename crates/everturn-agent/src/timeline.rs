//! What going back in a conversation does to what came after.

use std::collections::HashSet;
use std::sync::Arc;

use everturn_core::Result;

use crate::store::{Cursor, Detail, Mutation, Order, Precondition, Scope, SessionStore, SnapshotQuery};
use crate::{SessionId, Snapshot, SnapshotId};

/// What happens to the snapshots that come after one that is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Timeline {
    /// They stay as they are, and what follows is a branch beside them.
    #[default]
    Branching,
    /// They are left behind: marked [`orphaned`](Snapshot::orphaned), kept, and listed only on request.
    ///
    /// That happens with the first snapshot that is taken after the resumption: it is written first, as the session's
    /// new tip, and the others are marked then. So nothing changes if the turn fails, and whoever resumes by the session
    /// finds the old tip or the new one and nothing in between, whenever the process dies. Marks that could not be
    /// written are made up for with the invocation's next snapshot. If the process dies before that, such rows are listed,
    /// like a branch, until a later rewind passes them.
    ///
    /// What was left behind is recovered by resuming one of its snapshots: its line is then the session's again, and
    /// the line that had replaced it is orphaned.
    Linear,
}

/// A return to an earlier snapshot whose followers are yet to be left behind.
#[derive(Clone)]
pub(crate) struct Rewind {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) scope: Scope,
    pub(crate) session: SessionId,
    /// The snapshot that was resumed.
    pub(crate) to: SnapshotId,
    /// The snapshots taken since, oldest first.
    pub(crate) since: Vec<SnapshotId>,
}

impl Rewind {
    /// Makes the line that leads from the resumed snapshot to `tip` the only one from where it left the other.
    pub(crate) async fn carry_out(&self, tip: &SnapshotId) -> Result<()> {
        let (mut line, fork) = self.recovered().await?;
        // First what is to be found again, then what is to be hidden: in between there is a branch, and nothing is lost.
        for id in line.iter().rev() {
            self.mark(id, false).await?;
        }
        line.extend(self.since.iter().cloned());
        line.push(tip.clone());
        let line: HashSet<SnapshotId> = line.into_iter().collect();
        for id in self.after(fork.as_ref()).await? {
            if !line.contains(&id) {
                self.mark(&id, true).await?;
            }
        }
        Ok(())
    }

    /// The orphaned snapshots from the resumed one upwards, and the first ancestor that is not orphaned.
    async fn recovered(&self) -> Result<(Vec<SnapshotId>, Option<Snapshot>)> {
        let mut line = Vec::new();
        let mut next = Some(self.to.clone());
        while let Some(id) = next {
            let Some(row) = self.store.get(&self.scope, &id, Detail::Metadata).await? else {
                break;
            };
            // Rows that form a circle were not written here, but must not be followed for ever.
            if !row.orphaned || line.contains(&id) {
                return Ok((line, Some(row)));
            }
            line.push(id);
            next = row.parent_id;
        }
        Ok((line, None))
    }

    /// The session's snapshots after this one, or all, that are not orphaned.
    async fn after(&self, fork: Option<&Snapshot>) -> Result<Vec<SnapshotId>> {
        let mut query = SnapshotQuery::of(self.session.clone());
        query.order = Order::Oldest;
        query.after = fork.map(Cursor::at);
        let mut found = Vec::new();
        loop {
            let page = self.store.list(&self.scope, &query).await?;
            found.extend(page.items.into_iter().map(|row| row.snapshot_id));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(found),
            }
        }
    }

    async fn mark(&self, id: &SnapshotId, orphaned: bool) -> Result<()> {
        let mark: Mutation = Arc::new(move |row| {
            let other = row.filter(|row| row.orphaned != orphaned);
            Ok(other.map(|row| Snapshot {
                orphaned,
                ..row.clone()
            }))
        });
        self.store
            .save(&self.scope, Some(id), Precondition::None, mark)
            .await?;
        Ok(())
    }
}
