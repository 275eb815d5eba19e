//! Forking, copying and repairing sessions within a store.

use std::sync::Arc;

use everturn_ai::History;
use everturn_ai::history::{awaiting, repaired};
use everturn_core::{Error, Result};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::import::{Intake, Names};
use super::{Archive, named_session, named_snapshot};
use crate::policy::{FailedTurns, resumable};
use crate::storage::snapshot::Transition;
use crate::store::{Detail, Precondition};
use crate::{SessionId, SessionState, Snapshot, SnapshotId, Timeline};

/// The key under which the first snapshot of a forked session names its origin: `{"sessionId",
/// "snapshotId"}`.
pub const FORKED_FROM: &str = "forkedFrom";

impl Archive {
    /// Begins a new session with the state of a snapshot, and returns the new session's only snapshot.
    ///
    /// The new snapshot has a new id, no parent and no labels; its [`FORKED_FROM`] names the original. It
    /// shares the messages if the store shares messages, and stays when the original is deleted. The messages
    /// are unchanged: a message that names the snapshot it ended still names the original.
    ///
    /// # Errors
    /// `NOT_FOUND` if the snapshot does not exist, `FAILED_PRECONDITION` if it is not completed,
    /// `ALREADY_EXISTS` if the session has snapshots, `INVALID_ARGUMENT` for an empty id.
    pub async fn fork(&self, id: impl Into<SnapshotId>, session: impl Into<SessionId>) -> Result<Snapshot> {
        self.fork_edited(named_snapshot(id)?, named_session(session)?, None)
            .await
    }

    /// Like [`Archive::fork`], with another custom state.
    ///
    /// The session may be the snapshot's own: then the new snapshot follows the original there, as the
    /// session's latest, and the next turn continues with the custom state.
    ///
    /// An agent's archive checks the custom state against the schema of the agent's state.
    ///
    /// # Errors
    /// As [`Archive::fork`]; `INVALID_ARGUMENT`, with the place of the fault, if the custom state does not
    /// match the schema. In the snapshot's own session, `ABORTED` if a turn continued the snapshot meanwhile,
    /// and `FAILED_PRECONDITION` if the snapshot is not the latest of a [linear](crate::Timeline::Linear)
    /// session.
    pub async fn fork_with_custom(
        &self,
        id: impl Into<SnapshotId>,
        session: impl Into<SessionId>,
        custom: impl Into<Value>,
    ) -> Result<Snapshot> {
        let custom = custom.into();
        if let Some(schema) = &self.custom_schema {
            let unfit = |error: Error| {
                error
                    .context("the custom state does not fit the agent")
                    .with_public()
            };
            schema.validate(&custom).map_err(unfit)?;
        }
        self.fork_edited(named_snapshot(id)?, named_session(session)?, Some(custom))
            .await
    }

    async fn fork_edited(
        &self,
        id: SnapshotId,
        session: SessionId,
        custom: Option<Value>,
    ) -> Result<Snapshot> {
        let origin = resumable(self.stored(&id, Detail::Whole).await?, FailedTurns::Discard)?;
        let is_edited = custom.is_some();
        let (origin, name) = match custom {
            Some(custom) => Self::edited(origin, |state| state.custom = Some(Arc::new(custom)))?,
            None => (origin, None),
        };
        if is_edited && origin.session_id.as_ref() == Some(&session) {
            let name = name.unwrap_or_else(SnapshotId::generate);
            return self.follow_edited(origin, name, session).await;
        }
        let now = self.clock.now();
        let mut extra = origin.extra;
        extra.insert(
            FORKED_FROM.to_owned(),
            json!({"sessionId": origin.session_id, "snapshotId": id}),
        );
        let snapshot = Snapshot {
            updated_at: Some(now),
            finish_reason: origin.finish_reason,
            index: Some(0),
            turn_index: origin.turn_index,
            event: origin.event,
            state: origin.state,
            bookkeeping: origin.bookkeeping.of_conversation(),
            extra,
            ..Snapshot::new(name.unwrap_or(id), session.clone(), now)
        };
        let mut intake = Intake::into_session(self, session, Names::replaced()).await?;
        let forked = intake.put(snapshot).await;
        self.show(intake.settle(forked).await?)
    }

    /// Changes the state of a snapshot. Also returns the snapshot's new name if it is named after its
    /// content. The intake names it after its content too.
    pub(super) fn edited(
        mut origin: Snapshot,
        edit: impl FnOnce(&mut SessionState),
    ) -> Result<(Snapshot, Option<SnapshotId>)> {
        let is_named_after_content = matches!(origin.verify(), Ok(true));
        let state = origin.state.get_or_insert_default();
        edit(state);
        let name = is_named_after_content.then(|| SnapshotId::of_state(state));
        Ok((origin, name.transpose()?))
    }

    /// Writes an edited snapshot into its own session, after the original.
    pub(super) async fn follow_edited(
        &self,
        edited: Snapshot,
        name: SnapshotId,
        session: SessionId,
    ) -> Result<Snapshot> {
        let id = edited.snapshot_id.clone();
        let stored = self.session(&session);
        let tip = stored.tip(Detail::Metadata).await?;
        let latest = tip.as_ref().unwrap_or(&edited);
        let precondition = match self.timeline {
            Timeline::Linear if latest.snapshot_id != id => {
                return Err(Error::failed_precondition(format!(
                    "the timeline is linear and snapshot '{id}' is not the latest of session '{session}': resume it first, \
                     or fork it into a session of its own"
                ))
                .with_public());
            }
            Timeline::Linear => Precondition::Tip(Some(id.clone())),
            Timeline::Branching if stored.is_followed(&edited).await? => Precondition::None,
            Timeline::Branching => Precondition::unfollowed(Some(id.clone())),
        };
        // It sorts after both, regardless of the clocks of other processes.
        let floor = latest.created_at.max(edited.created_at);
        let floor = floor
            .saturating_add(SignedDuration::from_micros(1))
            .unwrap_or(floor);
        let now = self.clock.now().max(floor);
        let index = latest.index.map(|index| index + 1);
        let counted_with = edited.counted_with().cloned();
        let mut extra = edited.extra;
        extra.shift_remove(FORKED_FROM);
        let mut snapshot = Snapshot {
            parent_id: Some(id),
            updated_at: Some(now),
            finish_reason: edited.finish_reason,
            index,
            turn_index: edited.turn_index,
            event: edited.event,
            state: edited.state,
            bookkeeping: edited.bookkeeping.of_conversation(),
            extra,
            ..Snapshot::new(name.clone(), session, now)
        };
        snapshot.set_counted_with(counted_with);
        let import = Transition::Import {
            snapshot: Box::new(snapshot),
        };
        let written = self.tenant.commit(&name, precondition, import, &[]).await?;
        self.show(
            written.ok_or_else(|| Error::internal(format!("the store did not write snapshot '{name}'")))?,
        )
    }

    /// Copies all of a session's snapshots into a new session and returns their number.
    ///
    /// The copies have new ids; times, labels, notes and the shape of the tree stay. The copy of a
    /// content-addressed snapshot is content-addressed too, and its state names the new session. A pending
    /// snapshot is copied without the run behind it: no worker will complete the copy. Snapshots that the
    /// session gains meanwhile are not copied. If copying fails, no copy remains.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session has no snapshots, `ALREADY_EXISTS` if the new one has, `INVALID_ARGUMENT`
    /// for an empty id.
    pub async fn copy(&self, session: impl Into<SessionId>, to: impl Into<SessionId>) -> Result<u64> {
        let session = named_session(session)?;
        let ids = self.stored_ids(&session).await?;
        let mut intake = Intake::into_session(self, named_session(to)?, Names::replaced()).await?;
        let copied = self.copy_snapshots(&ids, &mut intake).await;
        intake.settle(copied).await
    }

    async fn copy_snapshots(&self, ids: &[SnapshotId], intake: &mut Intake<'_>) -> Result<u64> {
        for id in ids {
            // A snapshot that was deleted since the ids were read is not copied.
            if let Some(snapshot) = self.tenant.get(id, Detail::Whole).await? {
                intake.put(snapshot).await?;
            }
        }
        match intake.arrived().len() {
            0 => Err(Error::not_found("the session was deleted while it was copied").with_public()),
            count => Ok(count as u64),
        }
    }
}

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
