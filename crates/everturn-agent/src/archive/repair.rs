//! Repairing sessions whose history no provider takes.

use everturn_ai::History;
use everturn_ai::history::{awaiting, repaired};
use everturn_core::Result;

use super::{Archive, named_snapshot};
use crate::policy::failed_turns::{FailedTurns, resumable};
use crate::store::Detail;
use crate::{Snapshot, SnapshotId};

impl Archive {
    /// Adds a snapshot with a [`repaired`] history after a snapshot whose history no provider takes, and
    /// returns it. Returns `None` if there is nothing to repair. Requests that wait for their answers stay
    /// open.
    ///
    /// Agents repair each request to their model, so a session can be used without this. The new snapshot is
    /// the session's latest, so later snapshots have no faults. The original stays as it is.
    ///
    /// # Errors
    /// `NOT_FOUND` if the snapshot does not exist, `FAILED_PRECONDITION` if it is not completed, or not the
    /// latest of a [linear](crate::Timeline::Linear) session, `ABORTED` if a turn continued it meanwhile.
    pub async fn repair(&self, id: impl Into<SnapshotId>) -> Result<Option<Snapshot>> {
        let id = named_snapshot(id)?;
        let origin = resumable(self.stored(&id, Detail::Whole).await?, FailedTurns::Discard)?;
        let messages = origin
            .state
            .as_ref()
            .and_then(|state| repaired_past(&state.messages));
        let (Some(messages), Some(session)) = (messages, origin.session_id.clone()) else {
            return Ok(None);
        };
        let (edited, name) = Self::edited(origin, |state| state.messages = messages)?;
        let name = name.unwrap_or_else(SnapshotId::generate);
        self.follow_edited(edited, name, session).await.map(Some)
    }
}

/// Returns the history with everything repaired except requests that wait for their answers; `None` if there
/// is nothing to repair.
fn repaired_past(history: &History) -> Option<History> {
    let past = awaiting(history).unwrap_or(history.len());
    let mut whole = repaired(&history.truncate_to(past))?.history;
    whole.extend(history.since(past).cloned());
    Some(whole)
}
