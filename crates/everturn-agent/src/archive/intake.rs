//! Writing snapshots into a new session, all or none.

use std::collections::HashMap;

use everturn_core::{Error, Result};

use super::Archive;
use crate::storage::snapshot::Transition;
use crate::store::{Deletion, Precondition, TIP_MOVED};
use crate::{SessionId, Snapshot, SnapshotId};

/// The ids of snapshots in their new session.
pub(super) enum Names {
    /// The ids stay.
    Kept,
    /// New ids, so that the original and the copy can be in one store; content-addressed ids stay
    /// content-addressed. A parent that is not among the snapshots stays missing.
    Replaced(HashMap<SnapshotId, SnapshotId>),
}

impl Names {
    pub(super) fn replaced() -> Self {
        Self::Replaced(HashMap::new())
    }

    /// Renames a snapshot for its new session.
    fn rename(&mut self, snapshot: Snapshot, session: &SessionId) -> Result<Snapshot> {
        let mut renamed = Snapshot {
            session_id: Some(session.clone()),
            ..snapshot.clone()
        };
        let Self::Replaced(names) = self else {
            return Ok(renamed);
        };
        // The run behind a pending snapshot belongs to the original: a worker that finds the copy must not
        // run it again.
        renamed.clear_background_run();
        // A state without a session id stays without one, because the id is part of the hash.
        if let Some(state) = &mut renamed.state
            && state.session_id.is_some()
        {
            state.session_id = Some(session.clone());
        }
        renamed.snapshot_id = match (names.get(&snapshot.snapshot_id), &renamed.state) {
            (Some(name), _) => name.clone(),
            // The session's id is part of the hash, so the copy has another id than the original.
            (None, Some(state)) if matches!(snapshot.verify(), Ok(true)) => SnapshotId::of_state(state)?,
            _ => SnapshotId::generate(),
        };
        names.insert(snapshot.snapshot_id, renamed.snapshot_id.clone());
        // A parent may arrive later or never. Its new id is chosen now and used if it does.
        let mut name = |id: SnapshotId| names.entry(id).or_insert_with(SnapshotId::generate).clone();
        renamed.parent_id = snapshot.parent_id.map(&mut name);
        renamed.rename_listed_parent(|parent| name(parent.clone()));
        Ok(renamed)
    }
}

/// Snapshots that are being written into a new session.
pub(super) struct Intake<'a> {
    archive: &'a Archive,
    session: SessionId,
    names: Names,
    arrived: Vec<SnapshotId>,
}

impl<'a> Intake<'a> {
    /// Begins the intake into a session.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the session has snapshots.
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

    /// Returns the new ids of the snapshots written so far, in order.
    pub(super) fn arrived(&self) -> &[SnapshotId] {
        &self.arrived
    }

    /// Writes a snapshot into the session.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if another writer began the session meanwhile, or a snapshot with that id exists.
    pub(super) async fn put(&mut self, snapshot: Snapshot) -> Result<Snapshot> {
        let snapshot = self.names.rename(snapshot, &self.session)?;
        let id = snapshot.snapshot_id.clone();
        // Only the first write decides who begins the session; after it the session is this intake's.
        let precondition = if self.arrived.is_empty() {
            Precondition::Tip(None)
        } else {
            Precondition::None
        };
        let import = Transition::Import {
            snapshot: Box::new(snapshot),
        };
        let written = self
            .archive
            .tenant
            .commit(&id, precondition, import, &[])
            .await
            .map_err(|error| {
                if error.is(TIP_MOVED) {
                    occupied(&self.session)
                } else {
                    error
                }
            })?;
        // Noted before the answer is examined: whatever was written has to be deleted after a failure.
        self.arrived.push(id.clone());
        written.ok_or_else(|| Error::internal(format!("the store did not write snapshot '{id}'")))
    }

    /// Ends the intake: after a failure, deletes the snapshots that were written.
    pub(super) async fn settle<T>(self, outcome: Result<T>) -> Result<T> {
        let Err(error) = outcome else {
            return outcome;
        };
        if self.arrived.is_empty() {
            return Err(error);
        }
        let undone = self
            .archive
            .tenant
            .delete(&Deletion::Snapshots(self.arrived))
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
