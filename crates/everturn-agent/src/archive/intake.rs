//! Rows on their way into a session that has none yet: all of them arrive, or none stays.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_core::{Error, Result};

use super::Archive;
use crate::lease::RunRecord;
use crate::store::{Deletion, Mutation, Precondition, TIP_MOVED};
use crate::{SessionId, Snapshot, SnapshotId};

/// What rows are called where they arrive.
pub(super) enum Names {
    /// What they were called where they came from.
    Kept,
    /// Something new, so that both can be in one store. A parent that never arrives is as absent as it was.
    Fresh(HashMap<SnapshotId, SnapshotId>),
}

impl Names {
    pub(super) fn fresh() -> Self {
        Self::Fresh(HashMap::new())
    }

    fn of(&mut self, id: SnapshotId) -> SnapshotId {
        match self {
            Self::Kept => id,
            Self::Fresh(names) => names.entry(id).or_insert_with(SnapshotId::fresh).clone(),
        }
    }
}

/// Rows on their way into a session.
pub(super) struct Intake<'a> {
    archive: &'a Archive,
    session: SessionId,
    names: Names,
    arrived: Vec<SnapshotId>,
}

impl<'a> Intake<'a> {
    /// # Errors
    /// `ALREADY_EXISTS` if the session has rows.
    pub(super) async fn into_session(archive: &'a Archive, session: SessionId, names: Names) -> Result<Self> {
        if archive.exists(&session).await? {
            return Err(occupied(&session));
        }
        Ok(Self {
            archive,
            session,
            names,
            arrived: Vec::new(),
        })
    }

    /// The rows that arrived, in the order in which they came, under the names they have now.
    pub(super) fn arrived(&self) -> &[SnapshotId] {
        &self.arrived
    }

    /// Writes a row, as it was, into the session.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if somebody else began the session meanwhile, or a row of that name is there.
    pub(super) async fn put(&mut self, row: Snapshot) -> Result<Snapshot> {
        let id = self.names.of(row.snapshot_id);
        let mut row = Snapshot {
            snapshot_id: id.clone(),
            session_id: Some(self.session.clone()),
            parent_id: row.parent_id.map(|parent| self.names.of(parent)),
            ..row
        };
        if let Names::Fresh(_) = self.names {
            // The run behind a pending row is the original's: a worker that finds the copy must not run it again.
            RunRecord::clear(&mut row);
            if let Some(state) = row.state.as_mut().filter(|state| state.session_id.is_some()) {
                state.session_id = Some(self.session.clone());
            }
        }
        let precondition = if self.arrived.is_empty() {
            Precondition::Tip(None)
        } else {
            Precondition::None
        };
        let mutation: Mutation = Arc::new(move |existing| match existing {
            None => Ok(Some(row.clone())),
            Some(existing) => Err(Error::already_exists(format!(
                "there is a snapshot '{}' already, in session '{}'",
                existing.snapshot_id,
                existing.session_id.as_ref().map_or("", SessionId::as_str),
            ))),
        });
        let written = self
            .archive
            .store
            .save(&self.archive.scope, Some(&id), precondition, mutation)
            .await
            .map_err(|error| {
                if error.is(TIP_MOVED) {
                    occupied(&self.session)
                } else {
                    error
                }
            })?;
        self.arrived.push(id.clone());
        written.ok_or_else(|| Error::internal(format!("the store did not write snapshot '{id}'")))
    }

    /// Settles what came of it: after a failure, what arrived is taken away again.
    pub(super) async fn settle<T>(self, outcome: Result<T>) -> Result<T> {
        let Err(error) = outcome else {
            return outcome;
        };
        if self.arrived.is_empty() {
            return Err(error);
        }
        let undone = self
            .archive
            .store
            .delete(&self.archive.scope, &Deletion::Snapshots(self.arrived))
            .await;
        Err(match undone {
            Ok(_) => error,
            Err(second) => error.context(format_args!(
                "session '{}' is incomplete and could not be deleted again ({second})",
                self.session
            )),
        })
    }
}

fn occupied(session: &SessionId) -> Error {
    Error::already_exists(format!("there is a session '{session}' already")).with_public()
}
