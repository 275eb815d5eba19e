//! Taking over a run whose worker was lost, and finding out where it continues.

use everturn_core::{Error, Result, TraceParent};
use jiff::Timestamp;

use super::RecoveredRun;
use crate::invocation::cursor::InvocationCursor;
use crate::invocation::{Definition, Opening};
use crate::storage::snapshot::{BackgroundRun, Lease, Transition};
use crate::storage::stored_session::TenantStore;
use crate::store::{Detail, PendingRun, Scope};
use crate::{AgentInit, SessionId, SessionState, Snapshot, SnapshotId};

/// A run whose lease has lapsed.
pub(super) struct LostRun {
    pub(super) scope: Scope,
    pub(super) id: SnapshotId,
    /// The snapshot that the run began after.
    parent: Option<SnapshotId>,
    pub(super) run: BackgroundRun,
}

impl LostRun {
    /// Returns the run if it is this agent's and its worker left what is needed to continue it.
    ///
    /// # Errors
    /// `DATA_LOSS` if the worker's notes cannot be read.
    pub(super) fn of(pending: PendingRun, agent: &str) -> Result<Option<Self>> {
        let run = pending.snapshot.background_run()?;
        // The store may hold runs of other agents, and pending snapshots of other frameworks without these
        // notes.
        let Some(run) = run.filter(|run| run.agent == agent).cloned() else {
            return Ok(None);
        };
        Ok(Some(Self {
            scope: pending.scope,
            id: pending.snapshot.snapshot_id,
            parent: pending.snapshot.parent_id,
            run,
        }))
    }

    /// Describes the run, whose snapshot is now this one.
    pub(super) fn report(&self, snapshot: &Snapshot) -> Result<RecoveredRun> {
        let run = snapshot.background_run()?;
        Ok(RecoveredRun {
            agent: self.run.agent.clone(),
            scope: self.scope.clone(),
            session_id: snapshot.session_id.clone().unwrap_or_else(SessionId::generate),
            snapshot_id: self.id.clone(),
            attempt: run.map_or(self.run.attempts, |run| run.attempts),
        })
    }
}

/// The terms of a takeover.
pub(super) struct Takeover {
    pub(super) now: Timestamp,
    /// A run with a later heartbeat is not lost.
    pub(super) silent_since: Timestamp,
    /// The number of workers that may begin the same work.
    pub(super) attempts: u32,
}

impl Takeover {
    /// Takes a run over, or ends it as failed if it was begun too often; `None` if it has changed meanwhile.
    pub(super) async fn attempt(self, tenant: &TenantStore, lost: &LostRun) -> Result<Option<Snapshot>> {
        // A run that ends here must hold the state that it came to, which may be in its parent only.
        let begun_after = match &lost.parent {
            Some(parent) if lost.run.attempts >= self.attempts => tenant.get(parent, Detail::Whole).await?,
            _ => None,
        };
        let take_over = Transition::TakeOver {
            lapsed: lost.run.lease,
            silent_since: self.silent_since,
            attempts: self.attempts,
            begun_at: begun_after.and_then(|parent| parent.state).map(Box::new),
            now: self.now,
        };
        tenant.change(&lost.id, take_over).await
    }
}

/// A run that this worker has taken over, and where it continues.
pub(crate) struct TakenRun {
    pub(crate) id: SnapshotId,
    pub(crate) run: BackgroundRun,
    pub(crate) opening: Opening,
    /// The span of the invocation that became the run.
    pub(crate) origin: Option<TraceParent>,
}

impl TakenRun {
    /// Reads the state at which a run continues: the state that its worker recorded for the first input that
    /// is left, or else the state of the parent snapshot.
    ///
    /// # Errors
    /// The store's own errors. The inner error is a run that can never continue.
    pub(super) async fn open(
        definition: &Definition,
        tenant: &TenantStore,
        mut snapshot: Snapshot,
    ) -> Result<Result<Self, HopelessRun>> {
        let id = snapshot.snapshot_id.clone();
        let (Some(run), Some(session_id)) =
            (snapshot.background_run()?.cloned(), snapshot.session_id.clone())
        else {
            return Err(Error::internal(format!(
                "the store answered with another snapshot than '{id}'"
            )));
        };
        let parent = match &snapshot.parent_id {
            Some(parent) => tenant.get(parent, Detail::Whole).await?,
            None => None,
        };
        let begun_after = parent.as_ref().and_then(|parent| parent.state.clone());
        // The recorded state wins: turns of the run may have ended since the parent.
        let state = match (snapshot.state.take().or(begun_after), &snapshot.parent_id) {
            (Some(state), _) => state,
            (None, None) => SessionState::default(),
            (None, Some(parent)) => {
                let error =
                    format!("the run cannot go on: snapshot '{parent}', which it began after, is gone");
                return Ok(Err(HopelessRun {
                    id,
                    lease: run.lease,
                    error: Error::data_loss(error),
                }));
            }
        };
        let mut cursor = InvocationCursor::new(
            tenant.session(session_id.clone()),
            definition.concurrency,
            definition.clock.clone(),
        )
        .with_rules(
            definition.timeline,
            definition.snapshot_ids,
            definition.failed_turns,
        );
        cursor.take_over(&snapshot, parent.as_ref(), run.turn.clone())?;
        let opening = Opening {
            session_id,
            state,
            cursor: Some(Box::new(cursor)),
            differs_from_snapshot: false,
            init: AgentInit::snapshot(id.clone()),
            is_clients_word: false,
            gives_custom: false,
            first_turn: None,
            call: None,
            listed: None,
        };
        Ok(Ok(Self {
            id,
            run,
            opening,
            origin: snapshot.origin(),
        }))
    }
}

/// A run that this worker has taken over and cannot continue.
pub(super) struct HopelessRun {
    pub(super) id: SnapshotId,
    pub(super) lease: Lease,
    pub(super) error: Error,
}

impl HopelessRun {
    /// Ends the run as failed, unless it was aborted or taken over meanwhile.
    pub(super) async fn give_up(self, tenant: &TenantStore, now: Timestamp) -> Result<()> {
        let give_up = Transition::GiveUp {
            lease: self.lease,
            error: self.error,
            now,
        };
        tenant.change(&self.id, give_up).await.map(drop)
    }
}
