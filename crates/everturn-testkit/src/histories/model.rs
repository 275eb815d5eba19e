//! The expected histories: a list of whole snapshots.

use std::collections::HashSet;

use everturn_agent::archive::FORKED_FROM;
use everturn_agent::{
    AgentFinishReason, SessionId, SessionState, Snapshot, SnapshotEvent, SnapshotId, SnapshotStatus,
};
use everturn_core::Status;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::agent::after_turn;

/// Every snapshot, in no order.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) snapshots: Vec<Snapshot>,
}

/// Rules of retention, by the program's clock.
pub(super) struct Rules {
    pub(super) horizon: Option<Timestamp>,
    pub(super) count: Option<usize>,
    pub(super) even_labelled: bool,
}

impl Model {
    pub(super) fn find(&self, id: &SnapshotId) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.snapshot_id == *id)
    }

    pub(super) fn find_mut(&mut self, id: &SnapshotId) -> Option<&mut Snapshot> {
        self.snapshots
            .iter_mut()
            .find(|snapshot| snapshot.snapshot_id == *id)
    }

    /// Returns a session's snapshots, oldest first.
    pub(super) fn session(&self, session: &SessionId) -> Vec<&Snapshot> {
        let own = self
            .snapshots
            .iter()
            .filter(|snapshot| snapshot.session_id.as_ref() == Some(session));
        let mut own: Vec<&Snapshot> = own.collect();
        own.sort_by_key(|snapshot| snapshot.position());
        own
    }

    pub(super) fn latest(&self, session: &SessionId) -> Option<&Snapshot> {
        self.session(session)
            .into_iter()
            .rfind(|snapshot| !snapshot.orphaned)
    }

    /// Returns whether a turn from this snapshot is a branch.
    pub(super) fn is_followed(&self, id: &SnapshotId) -> bool {
        let Some(parent) = self.find(id) else {
            return false;
        };
        let follows = |snapshot: &&Snapshot| {
            snapshot.parent_id.as_ref() == Some(id)
                && snapshot.session_id == parent.session_id
                && snapshot.position() > parent.position()
                && matches!(
                    snapshot.status,
                    SnapshotStatus::Completed | SnapshotStatus::Pending
                )
        };
        let kept = self.snapshots.iter().filter(|snapshot| !snapshot.orphaned);
        parent.orphaned || kept.filter(follows).count() > 0
    }

    /// Returns the snapshot that a turn from `parent` writes, except for its id.
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
            ..self.next_snapshot(session, parent, now)
        })
    }

    /// Returns the snapshot of a background run at a session's end.
    pub(super) fn pending(&self, session: &SessionId, id: SnapshotId, now: Timestamp) -> Snapshot {
        let mut snapshot = Snapshot {
            snapshot_id: id,
            status: SnapshotStatus::Pending,
            heartbeat_at: Some(now),
            ..self.next_snapshot(session, self.latest(session), now)
        };
        snapshot
            .extra
            .insert("pendingInputs".to_owned(), json!([{"detach": true}]));
        snapshot
    }

    fn next_snapshot(&self, session: &SessionId, parent: Option<&Snapshot>, now: Timestamp) -> Snapshot {
        let tip = self.latest(session);
        let after = |snapshot: &Snapshot| snapshot.created_at + SignedDuration::from_micros(1);
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

    /// Supersedes the snapshots that do not lead to `tip`, which is `to` itself or a new snapshot that
    /// continues it.
    pub(super) fn rewind(&mut self, to: &SnapshotId, tip: &SnapshotId) {
        // The superseded branch that belongs to the session again, back to where it left the kept one.
        let mut line = HashSet::from([tip.clone()]);
        let mut next = Some(to.clone());
        let mut fork = None;
        while let Some(snapshot) = next.take().and_then(|id| self.find_mut(&id)) {
            if !snapshot.orphaned {
                fork = Some(snapshot.clone());
                break;
            }
            snapshot.orphaned = false;
            line.insert(snapshot.snapshot_id.clone());
            next.clone_from(&snapshot.parent_id);
        }
        let session = self.find(tip).and_then(|tip| tip.session_id.clone());
        let abandoned = |snapshot: &&mut Snapshot| {
            snapshot.session_id == session
                && !line.contains(&snapshot.snapshot_id)
                && fork
                    .as_ref()
                    .is_none_or(|fork| snapshot.position() > fork.position())
        };
        for snapshot in self.snapshots.iter_mut().filter(abandoned) {
            snapshot.orphaned = true;
        }
    }

    pub(super) fn fork(
        &self,
        of: &SnapshotId,
        id: SnapshotId,
        session: &SessionId,
        now: Timestamp,
    ) -> Snapshot {
        let origin = self.find(of).expect("a snapshot that was forked");
        let mut snapshot = Snapshot {
            updated_at: Some(now),
            finish_reason: origin.finish_reason,
            index: Some(0),
            turn_index: origin.turn_index,
            event: origin.event,
            state: origin.state.clone(),
            extra: origin.extra.clone(),
            ..Snapshot::new(id, session.clone(), now)
        };
        snapshot.extra.insert(
            FORKED_FROM.to_owned(),
            json!({"sessionId": origin.session_id, "snapshotId": of}),
        );
        if let Some(state) = &mut snapshot.state {
            state.session_id = Some(session.clone());
        }
        snapshot
    }

    pub(super) fn delete(&mut self, gone: &HashSet<SnapshotId>) {
        self.snapshots
            .retain(|snapshot| !gone.contains(&snapshot.snapshot_id));
    }

    pub(super) fn delete_session(&mut self, session: &SessionId) -> usize {
        let before = self.snapshots.len();
        self.snapshots
            .retain(|snapshot| snapshot.session_id.as_ref() != Some(session));
        before - self.snapshots.len()
    }

    /// Returns a snapshot and all its descendants in its session.
    pub(super) fn branch(&self, id: &SnapshotId) -> HashSet<SnapshotId> {
        let Some(root) = self.find(id) else {
            return HashSet::new();
        };
        let mut branch = HashSet::from([id.clone()]);
        loop {
            let more: Vec<SnapshotId> = self
                .snapshots
                .iter()
                .filter(|snapshot| {
                    snapshot.session_id == root.session_id && !branch.contains(&snapshot.snapshot_id)
                })
                .filter(|snapshot| {
                    snapshot
                        .parent_id
                        .as_ref()
                        .is_some_and(|parent| branch.contains(parent))
                })
                .map(|snapshot| snapshot.snapshot_id.clone())
                .collect();
            if more.is_empty() {
                return branch;
            }
            branch.extend(more);
        }
    }

    pub(super) fn ancestors(&self, id: &SnapshotId) -> Vec<&SnapshotId> {
        let mut line = Vec::new();
        let mut next = self.find(id).and_then(|snapshot| snapshot.parent_id.as_ref());
        while let Some(ancestor) = next.and_then(|id| self.find(id)) {
            line.push(&ancestor.snapshot_id);
            next = ancestor.parent_id.as_ref();
        }
        line
    }

    /// Returns the snapshots that the rules delete. Sessions with only superseded snapshots are not listed,
    /// and so not reached.
    pub(super) fn expendable(&self, rules: &Rules) -> HashSet<SnapshotId> {
        let expendable = |snapshot: &&Snapshot| {
            let session = snapshot
                .session_id
                .as_ref()
                .expect("every snapshot has a session");
            let old =
                |snapshot: &Snapshot| rules.horizon.is_some_and(|horizon| snapshot.created_at < horizon);
            let newer = self
                .session(session)
                .into_iter()
                .filter(|other| other.orphaned == snapshot.orphaned && other.position() > snapshot.position())
                .count();
            let resumed_here =
                self.latest(session) == Some(snapshot) && !self.session(session).into_iter().all(old);
            let labelled = !snapshot.labels.is_empty() && !rules.even_labelled;
            let reached = self.latest(session).is_some();
            reached
                && (old(snapshot) || rules.count.is_some_and(|count| newer >= count))
                && snapshot.status != SnapshotStatus::Pending
                && !labelled
                && !resumed_here
        };
        let snapshots = self.snapshots.iter().filter(expendable);
        snapshots.map(|snapshot| snapshot.snapshot_id.clone()).collect()
    }
}
