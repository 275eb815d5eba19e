//! Writing a row that an invocation adds to its session.

use std::sync::Arc;

use everturn_core::{Error, Result};

use crate::content_id::holds_the_same;
use crate::store::{Detail, JournalKey, Mutation, Precondition, Scope, SessionStore, drop_journals};
use crate::timeline::{Line, Rewind};
use crate::{SessionId, Snapshot, SnapshotId};

/// A row that is to be written, and everything that goes with it.
pub(super) struct NewRow {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) scope: Scope,
    pub(super) session: SessionId,
    pub(super) precondition: Precondition,
    /// The return to an earlier row that it carries out.
    pub(super) rewind: Option<Back>,
    /// Whether it is named after what it holds, so that a row of its name is the same.
    pub(super) may_be_there: bool,
    /// Where the session's only line ends, if it may not branch.
    pub(super) only_line: Option<SnapshotId>,
    pub(super) row: Snapshot,
    /// Those of the turns it holds.
    pub(super) journals: Vec<JournalKey>,
}

/// A row that is in the store.
pub(crate) struct Saved {
    pub(crate) row: Snapshot,
    /// Whether it was written now: a row that is named after what it holds may have been there.
    pub(crate) is_new: bool,
    /// The rewind that came with it and could not be carried out to its end.
    pub(super) unfinished: Option<Rewind>,
    /// Whether it is the session's latest.
    pub(super) is_tip: bool,
}

/// A return to an earlier row.
#[derive(Clone)]
pub(super) enum Back {
    /// To this row; nothing has come of it yet.
    To(SnapshotId),
    /// A row has come of it, and not everything is marked that it leaves behind.
    Unfinished(Rewind),
}

impl NewRow {
    pub(super) async fn write(self) -> Result<Saved> {
        let Self {
            store,
            scope,
            session,
            precondition,
            rewind,
            may_be_there,
            only_line,
            row,
            journals,
        } = self;
        let line = Line {
            store: &*store,
            scope: &scope,
            session: &session,
        };
        let id = row.snapshot_id.clone();
        // What few turns do is in boxes, so that the others do not carry it about.
        let rewind = match rewind {
            Some(Back::To(to)) => Some(Box::pin(line.back_to(&to)).await?.going_on_to(&id)),
            Some(Back::Unfinished(rewind)) => Some(rewind.going_on_to(&id)),
            None => None,
        };
        let mut written = row.clone();
        if let Some(rewind) = &rewind {
            rewind.put(&mut written);
        }
        let mutation: Mutation = Arc::new(move |existing| match existing.filter(|_| may_be_there) {
            Some(existing) => check_equal(existing, &written).map(|()| None),
            None => Ok(Some(written.clone())),
        });
        let saved = store.commit(&scope, Some(&id), precondition, mutation, &journals);
        if saved.await?.is_none() {
            return Box::pin(already_there(line, row, only_line, &journals)).await;
        }
        let unfinished = match rewind {
            Some(rewind) => {
                let finished = Box::pin(line.finish(&rewind, &row)).await;
                Some(rewind).filter(|_| !settled(&finished, &id))
            }
            None => None,
        };
        Ok(Saved {
            row,
            is_new: true,
            unfinished,
            is_tip: true,
        })
    }
}

/// Goes on from a row that was there when it was to be written. `tip` is where the session's only line ends, if it may not
/// branch.
async fn already_there(
    line: Line<'_>,
    row: Snapshot,
    tip: Option<SnapshotId>,
    journals: &[JournalKey],
) -> Result<Saved> {
    let Line { store, scope, .. } = line;
    let id = row.snapshot_id;
    let found = store.get(scope, &id, Detail::Metadata).await?;
    let found = found
        .ok_or_else(|| Error::aborted(format!("snapshot '{id}' was deleted as it was to be saved again")))?;
    if let Some(tip) = tip.as_ref().filter(|tip| **tip != id) {
        line.go_to(&found, tip).await?;
    }
    if let Some(journal) = store.journal() {
        drop_journals(journal, scope, journals).await;
    }
    Ok(Saved {
        row: Snapshot {
            state: row.state,
            ..found
        },
        is_new: false,
        unfinished: None,
        is_tip: tip.is_some(),
    })
}

/// Two states with the same name are the same, but for numbers that the name cannot tell apart.
fn check_equal(existing: &Snapshot, row: &Snapshot) -> Result<()> {
    if let (Some(existing), Some(state)) = (&existing.state, &row.state)
        && holds_the_same(existing, state)
    {
        return Ok(());
    }
    Err(Error::failed_precondition(format!(
        "snapshot '{}' holds a state that differs in numbers beyond 2^53, which content-addressed names cannot tell \
         apart; keep such numbers as text",
        row.snapshot_id
    )))
}

/// A rewind that could not be carried out to its end is no failure of the turn, which is durable: the row says that there
/// is more to do, and so will the next.
fn settled(outcome: &Result<()>, tip: &SnapshotId) -> bool {
    if let Err(error) = outcome {
        tracing::warn!(%tip, %error, "not all that a rewind leaves behind could be marked");
    }
    outcome.is_ok()
}
