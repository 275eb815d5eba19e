//! Writing a snapshot that an invocation adds to its session.

use everturn_core::{Error, Result};

use super::Predecessor;
use crate::storage::snapshot::{Rewind, Transition};
use crate::storage::stored_session::StoredSession;
use crate::store::{Detail, JournalKey, Precondition, drop_journals};
use crate::{Snapshot, SnapshotId};

/// A snapshot to write, and everything that goes with it.
pub(super) struct NewSnapshot {
    pub(super) session: StoredSession,
    pub(super) precondition: Precondition,
    /// The rewind that it carries out.
    pub(super) rewind: Option<RewindDue>,
    /// Whether its id is the hash of its state, so that a stored snapshot with this id is the same one.
    pub(super) named_by_content: bool,
    /// The number of commits to the session when it is written.
    pub(super) as_of: u64,
    /// The session's tip, if the session may not branch.
    pub(super) only_tip: Option<SnapshotId>,
    pub(super) snapshot: Snapshot,
    /// The journals of the turns it holds.
    pub(super) journals: Vec<JournalKey>,
}

/// A snapshot that is in the store.
pub(crate) struct Saved {
    pub(crate) snapshot: Snapshot,
    pub(super) predecessor: Predecessor,
    /// Whether it was written now. A content-addressed snapshot may have existed before.
    pub(crate) is_new: bool,
    /// The rewind that came with it, if that could not be finished.
    pub(super) unfinished: Option<Rewind>,
    /// Whether the next snapshot follows it for certain: it is new, or the session's only tip.
    pub(super) is_tip: bool,
    /// Whether another snapshot follows it, or it is superseded: then the next one begins a branch.
    pub(super) is_followed: bool,
    /// The number of commits to the session before this was read.
    pub(super) as_of: u64,
}

/// A rewind that the next snapshot carries out.
#[derive(Clone)]
pub(super) enum RewindDue {
    /// A rewind to this snapshot; nothing of it is written yet.
    To(SnapshotId),
    /// A decided rewind of which not every superseded snapshot is marked.
    Unfinished(Rewind),
}

impl NewSnapshot {
    pub(super) async fn write(self) -> Result<Saved> {
        let Self {
            session,
            precondition,
            rewind,
            named_by_content,
            as_of,
            only_tip,
            snapshot,
            journals,
        } = self;
        let id = snapshot.snapshot_id.clone();
        // Few turns rewind. Their futures are boxed, so that the others do not carry the size.
        let rewind = match rewind {
            Some(RewindDue::To(to)) => Some(Box::pin(session.rewind_to(&to)).await?.extended_to(&id)),
            Some(RewindDue::Unfinished(rewind)) => Some(rewind.extended_to(&id)),
            None => None,
        };
        let mut written = snapshot.clone();
        if let Some(rewind) = &rewind {
            written.set_unfinished_rewind(rewind.clone());
        }
        let create = Transition::Create {
            snapshot: Box::new(written),
            named_by_content,
        };
        let saved = session.tenant().commit(&id, precondition, create, &journals);
        if saved.await?.is_none() {
            let existing = continue_from_existing(&session, snapshot, only_tip, &journals);
            return Box::pin(existing).await.map(|saved| Saved { as_of, ..saved });
        }
        let unfinished = match rewind {
            Some(rewind) => {
                let finished = Box::pin(session.finish_rewind(&rewind, &snapshot)).await;
                Some(rewind).filter(|_| !is_finished(&finished, &id))
            }
            None => None,
        };
        Ok(Saved {
            predecessor: Predecessor::of(&snapshot)?,
            snapshot,
            is_new: true,
            unfinished,
            is_tip: true,
            is_followed: false,
            as_of,
        })
    }
}

/// Continues from the existing snapshot instead of writing a duplicate. `tip` is the session's tip, if the
/// session may not branch.
async fn continue_from_existing(
    session: &StoredSession,
    snapshot: Snapshot,
    tip: Option<SnapshotId>,
    journals: &[JournalKey],
) -> Result<Saved> {
    let tenant = session.tenant();
    let id = snapshot.snapshot_id;
    let found = tenant.get(&id, Detail::Metadata).await?;
    let found = found.ok_or_else(|| {
        Error::aborted(format!(
            "snapshot '{id}' was deleted while this turn was saved: retry the turn"
        ))
    })?;
    // On a linear timeline the existing snapshot has to become the tip, even if it was superseded.
    if let Some(tip) = tip.as_ref().filter(|tip| **tip != id) {
        session.move_tip_to(&found, tip).await?;
    }
    let is_followed = tip.is_none() && session.is_followed(&found).await?;
    if let Some(journal) = tenant.store().journal() {
        drop_journals(journal, tenant.scope(), journals).await;
    }
    Ok(Saved {
        predecessor: Predecessor::of(&found)?,
        snapshot: Snapshot {
            // Equal to the stored state, and shared with the session instead of read again.
            state: snapshot.state,
            ..found
        },
        is_new: false,
        unfinished: None,
        is_tip: tip.is_some(),
        is_followed,
        as_of: 0,
    })
}

/// Returns whether a rewind is finished. An unfinished rewind is not a failure of the turn, which is durable:
/// the snapshot records that marks are missing, and the next snapshot continues with them.
fn is_finished(outcome: &Result<()>, tip: &SnapshotId) -> bool {
    if let Err(error) = outcome {
        tracing::warn!(%tip, %error, "a rewind could not mark every orphaned snapshot; the next turn or listing continues it");
    }
    outcome.is_ok()
}
