//! Claiming a run that its worker lost, and finding out where it goes on from.

use std::sync::Arc;

use everturn_core::{Error, Exposure, Result};
use jiff::Timestamp;

use super::RecoveredRun;
use crate::invocation::{Definition, Opening};
use crate::lease::{Lease, RunRecord};
use crate::ledger::Ledger;
use crate::store::{Detail, Mutation, PendingQuery, PendingRun, Precondition, Scope, SessionStore};
use crate::{AgentFinishReason, SessionId, Snapshot, SnapshotId, SnapshotStatus};

/// A run as a look for lost ones found it.
pub(super) struct LostRun {
    pub(super) scope: Scope,
    pub(super) id: SnapshotId,
    pub(super) record: RunRecord,
}

impl LostRun {
    /// The run, if it is this agent's and one of ours left what it takes to go on.
    pub(super) fn of(run: PendingRun, agent: &str) -> Option<Self> {
        let record = RunRecord::of(&run.row).filter(|record| record.agent == agent)?;
        Some(Self {
            scope: run.scope,
            id: run.row.snapshot_id,
            record,
        })
    }

    pub(super) fn summary(&self, row: &Snapshot) -> RecoveredRun {
        let attempt = RunRecord::of(row).map_or(self.record.attempts, |record| record.attempts);
        RecoveredRun {
            agent: self.record.agent.clone(),
            scope: self.scope.clone(),
            session_id: row.session_id.clone().unwrap_or_else(SessionId::fresh),
            snapshot_id: self.id.clone(),
            attempt,
        }
    }
}

/// The terms on which a run is claimed.
pub(super) struct Claim {
    pub(super) now: Timestamp,
    /// A run with a later sign of life is not lost.
    pub(super) silent_since: Timestamp,
    /// How many workers may begin the same work.
    pub(super) attempts: u32,
}

impl Claim {
    /// Claims a run, or marks it as failed if it was begun too often; `None` if it is not what it was.
    pub(super) async fn make(self, store: &dyn SessionStore, run: &LostRun) -> Result<Option<Snapshot>> {
        let lost = PendingQuery::silent_since(self.silent_since);
        let (now, attempts, seen) = (self.now, self.attempts, run.record.lease);
        let mutation: Mutation = Arc::new(move |row| {
            let unchanged = row.filter(|row| lost.wants(row));
            let Some((row, record)) = unchanged.and_then(|row| Some((row, RunRecord::of(row)?))) else {
                return Ok(None);
            };
            if record.lease != seen {
                return Ok(None);
            }
            if record.attempts >= attempts {
                return Ok(Some(failed(row, &begun_too_often(record.attempts), now)));
            }
            let mut row = Snapshot {
                heartbeat_at: Some(now),
                ..row.clone()
            };
            record.claimed().put(&mut row);
            Ok(Some(row))
        });
        store
            .save(&run.scope, Some(&run.id), Precondition::None, mutation)
            .await
    }
}

/// A run that is this worker's, and where it goes on.
pub(crate) struct ClaimedRun {
    pub(crate) scope: Scope,
    pub(crate) id: SnapshotId,
    pub(crate) record: RunRecord,
    pub(crate) opening: Opening,
}

impl ClaimedRun {
    /// Reads where a claimed run goes on: where its worker recorded that the first input that is left begins, else at the row
    /// before the run's.
    ///
    /// # Errors
    /// What the store fails with. The inner error is a run that can never go on.
    pub(super) async fn open<S>(
        definition: &Definition<S>,
        store: &Arc<dyn SessionStore>,
        mut row: Snapshot,
        scope: &Scope,
    ) -> Result<Result<Self, HopelessRun>> {
        let id = row.snapshot_id.clone();
        let (Some(record), Some(session_id)) = (RunRecord::of(&row), row.session_id.clone()) else {
            return Err(Error::internal(format!(
                "the store gave back another row than '{id}'"
            )));
        };
        let parent = match &row.parent_id {
            Some(parent) => store.get(scope, parent, Detail::Whole).await?,
            None => None,
        };
        let begun_after = parent.as_ref().and_then(|parent| parent.state.clone());
        let state = match (row.state.take().or(begun_after), &row.parent_id) {
            (Some(state), _) => state,
            (None, None) => crate::SessionState::default(),
            (None, Some(parent)) => {
                let error =
                    format!("the run cannot go on: snapshot '{parent}', which it began after, is gone");
                return Ok(Err(HopelessRun {
                    scope: scope.clone(),
                    id,
                    lease: record.lease,
                    error: Error::data_loss(error),
                }));
            }
        };
        let mut ledger = Ledger::new(
            Arc::clone(store),
            scope.clone(),
            session_id.clone(),
            definition.concurrency,
            definition.clock.clone(),
        )
        .with_rules(definition.timeline, definition.snapshot_ids);
        ledger.take_over(&row, parent.as_ref(), record.turn.clone());
        let opening = Opening {
            session_id,
            state,
            ledger: Some(ledger),
            differs_from_row: false,
        };
        Ok(Ok(Self {
            scope: scope.clone(),
            id,
            record,
            opening,
        }))
    }
}

/// A run that is this worker's and cannot go on.
pub(super) struct HopelessRun {
    pub(super) scope: Scope,
    pub(super) id: SnapshotId,
    pub(super) lease: Lease,
    pub(super) error: Error,
}

impl HopelessRun {
    /// Marks the run as failed, unless it was aborted or claimed meanwhile.
    pub(super) async fn give_up(self, store: &dyn SessionStore, now: Timestamp) -> Result<()> {
        let Self {
            scope,
            id,
            lease,
            error,
        } = self;
        let mutation: Mutation = Arc::new(move |row| {
            let own = row.filter(|row| row.status == SnapshotStatus::Pending && lease.is_on(row));
            Ok(own.map(|row| failed(row, &error, now)))
        });
        store
            .save(&scope, Some(&id), Precondition::None, mutation)
            .await?;
        Ok(())
    }
}

/// The row of a run that has failed, with how far it came if that was recorded.
fn failed(row: &Snapshot, error: &Error, now: Timestamp) -> Snapshot {
    let mut last = Snapshot {
        status: SnapshotStatus::Failed,
        finish_reason: Some(AgentFinishReason::Failed),
        error: Some(error.to_wire(Exposure::Full)),
        updated_at: Some(now.max(row.created_at)),
        heartbeat_at: None,
        ..row.clone()
    };
    RunRecord::clear(&mut last);
    last.state.clone_from(&row.state);
    last
}

fn begun_too_often(attempts: u32) -> Error {
    let times = if attempts == 1 {
        "once".to_owned()
    } else {
        format!("{attempts} times")
    };
    Error::unavailable(format!(
        "the run was given up: it was begun {times}, and each time its worker was lost before the end"
    ))
}
