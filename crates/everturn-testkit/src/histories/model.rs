//! The histories as they should be: a list of full snapshots.

use std::collections::HashSet;

use everturn_agent::archive::FORKED_FROM;
use everturn_agent::{
    AgentFinishReason, SessionId, SessionState, Snapshot, SnapshotEvent, SnapshotId, SnapshotStatus,
};
use everturn_core::Status;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::agent::after_turn;

/// Every row there is, in no order.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) rows: Vec<Snapshot>,
}

/// Rules of retention, by the clock of the program.
pub(super) struct Rules {
    pub(super) horizon: Option<Timestamp>,
    pub(super) count: Option<usize>,
    pub(super) even_labelled: bool,
}

impl Model {
    pub(super) fn find(&self, id: &SnapshotId) -> Option<&Snapshot> {
        self.rows.iter().find(|row| row.snapshot_id == *id)
    }

    pub(super) fn find_mut(&mut self, id: &SnapshotId) -> Option<&mut Snapshot> {
        self.rows.iter_mut().find(|row| row.snapshot_id == *id)
    }

    /// A session's rows, oldest first.
    pub(super) fn session(&self, session: &SessionId) -> Vec<&Snapshot> {
        let own = self
            .rows
            .iter()
            .filter(|row| row.session_id.as_ref() == Some(session));
        let mut own: Vec<&Snapshot> = own.collect();
        own.sort_by_key(|row| row.position());
        own
    }

    pub(super) fn latest(&self, session: &SessionId) -> Option<&Snapshot> {
        self.session(session).into_iter().rfind(|row| !row.orphaned)
    }

    /// The row that a turn from `parent` leaves, but for its id.
    pub(super) fn turn(
        &self,
        session: &SessionId,
        parent: Option<&Snapshot>,
        text: u8,
        now: Timestamp,
    ) -> Result<Snapshot, Status> {
        if parent.is_some_and(|parent| parent.status != SnapshotStatus::Completed) {
            return Err(Status::FailedPrecondition);
        }
        let before = parent.and_then(|parent| parent.state.clone()).unwrap_or_default();
        let state = SessionState {
            session_id: Some(session.clone()),
            ..after_turn(&before, text)
        };
        Ok(Snapshot {
            finish_reason: Some(AgentFinishReason::Stop),
            turn_index: Some(
                parent
                    .and_then(|parent| parent.turn_index)
                    .map_or(0, |turn| turn + 1),
            ),
            state: Some(state),
            ..self.next_row(session, parent, now)
        })
    }

    /// The row of a background run at a session's end.
    pub(super) fn pending(&self, session: &SessionId, id: SnapshotId, now: Timestamp) -> Snapshot {
        let mut row = Snapshot {
            snapshot_id: id,
            status: SnapshotStatus::Pending,
            heartbeat_at: Some(now),
            ..self.next_row(session, self.latest(session), now)
        };
        row.extra
            .insert("pendingInputs".to_owned(), json!([{"detach": true}]));
        row
    }

    fn next_row(&self, session: &SessionId, parent: Option<&Snapshot>, now: Timestamp) -> Snapshot {
        let tip = self.latest(session);
        let after = |row: &Snapshot| row.created_at + SignedDuration::from_micros(1);
        let created_at = [parent, tip]
            .into_iter()
            .flatten()
            .map(after)
            .fold(now, Timestamp::max);
        Snapshot {
            parent_id: parent.map(|parent| parent.snapshot_id.clone()),
            updated_at: Some(created_at),
            index: Some(tip.and_then(|tip| tip.index).map_or(0, |index| index + 1)),
            event: Some(SnapshotEvent::TurnEnd),
            ..Snapshot::new("unknown".into(), session.clone(), created_at)
        }
    }

    /// Leaves behind what does not lead to `tip`: a new row that goes on from `to`, or `to` itself.
    pub(super) fn rewind(&mut self, to: &SnapshotId, tip: &SnapshotId) {
        // The line that was left behind and is the session's again, and where it had left the other.
        let mut line = HashSet::from([tip.clone()]);
        let mut next = Some(to.clone());
        let mut fork = None;
        while let Some(row) = next.take().and_then(|id| self.find_mut(&id)) {
            if !row.orphaned {
                fork = Some(row.clone());
                break;
            }
            row.orphaned = false;
            line.insert(row.snapshot_id.clone());
            next.clone_from(&row.parent_id);
        }
        let session = self.find(tip).and_then(|tip| tip.session_id.clone());
        let abandoned = |row: &&mut Snapshot| {
            row.session_id == session
                && !line.contains(&row.snapshot_id)
                && fork.as_ref().is_none_or(|fork| row.position() > fork.position())
        };
        for row in self.rows.iter_mut().filter(abandoned) {
            row.orphaned = true;
        }
    }

    pub(super) fn fork(
        &self,
        of: &SnapshotId,
        id: SnapshotId,
        session: &SessionId,
        now: Timestamp,
    ) -> Snapshot {
        let origin = self.find(of).expect("a row that was forked");
        let mut row = Snapshot {
            updated_at: Some(now),
            finish_reason: origin.finish_reason,
            index: Some(0),
            turn_index: origin.turn_index,
            event: origin.event,
            state: origin.state.clone(),
            extra: origin.extra.clone(),
            ..Snapshot::new(id, session.clone(), now)
        };
        row.extra.insert(
            FORKED_FROM.to_owned(),
            json!({"sessionId": origin.session_id, "snapshotId": of}),
        );
        if let Some(state) = &mut row.state {
            state.session_id = Some(session.clone());
        }
        row
    }

    pub(super) fn delete(&mut self, gone: &HashSet<SnapshotId>) {
        self.rows.retain(|row| !gone.contains(&row.snapshot_id));
    }

    pub(super) fn delete_session(&mut self, session: &SessionId) -> usize {
        let before = self.rows.len();
        self.rows.retain(|row| row.session_id.as_ref() != Some(session));
        before - self.rows.len()
    }

    /// A row and all that came of it in its session.
    pub(super) fn branch(&self, id: &SnapshotId) -> HashSet<SnapshotId> {
        let Some(root) = self.find(id) else {
            return HashSet::new();
        };
        let mut branch = HashSet::from([id.clone()]);
        loop {
            let more: Vec<SnapshotId> = self
                .rows
                .iter()
                .filter(|row| row.session_id == root.session_id && !branch.contains(&row.snapshot_id))
                .filter(|row| {
                    row.parent_id
                        .as_ref()
                        .is_some_and(|parent| branch.contains(parent))
                })
                .map(|row| row.snapshot_id.clone())
                .collect();
            if more.is_empty() {
                return branch;
            }
            branch.extend(more);
        }
    }

    pub(super) fn ancestors(&self, id: &SnapshotId) -> Vec<&SnapshotId> {
        let mut line = Vec::new();
        let mut next = self.find(id).and_then(|row| row.parent_id.as_ref());
        while let Some(ancestor) = next.and_then(|id| self.find(id)) {
            line.push(&ancestor.snapshot_id);
            next = ancestor.parent_id.as_ref();
        }
        line
    }

    /// The rows that rules let go. Sessions of which only orphaned rows are left are not listed and so not reached.
    pub(super) fn expendable(&self, rules: &Rules) -> HashSet<SnapshotId> {
        let expendable = |row: &&Snapshot| {
            let session = row.session_id.as_ref().expect("every row has a session");
            let old = |row: &Snapshot| rules.horizon.is_some_and(|horizon| row.created_at < horizon);
            let newer = self
                .session(session)
                .into_iter()
                .filter(|other| other.orphaned == row.orphaned && other.position() > row.position())
                .count();
            let resumed_here =
                self.latest(session) == Some(row) && !self.session(session).into_iter().all(old);
            let labelled = !row.labels.is_empty() && !rules.even_labelled;
            let reached = self.latest(session).is_some();
            reached
                && (old(row) || rules.count.is_some_and(|count| newer >= count))
                && row.status != SnapshotStatus::Pending
                && !labelled
                && !resumed_here
        };
        let rows = self.rows.iter().filter(expendable);
        rows.map(|row| row.snapshot_id.clone()).collect()
    }
}
