//! Who works on a background run, and what another worker needs to go on with it.
//!
//! Both are kept in the run's pending row. Whoever works on the run holds its *lease*: the row names the worker and the
//! epoch of its claim, and its heartbeat says that the worker lives. A worker that takes a run over puts itself and a
//! higher epoch in that place, in one atomic step. Every later write of the first worker compares the two inside the
//! store's own step and finds the row no longer its own: it writes nothing, however long it slept.
//!
//! The record is for workers. Readers see a pending row without it, and without the state that goes with it.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::journal::OpenTurn;
use crate::store::Scope;
use crate::{AgentInput, SessionState, Snapshot, SnapshotStatus};

/// Under which key a pending row holds its record.
const BACKGROUND_RUN: &str = "backgroundRun";

/// This process, as leases name it.
static WORKER: LazyLock<Uuid> = LazyLock::new(Uuid::new_v4);

/// One worker's claim on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    worker: Uuid,
    /// Grows with every claim, so that two claims of one process differ too.
    epoch: u64,
}

impl Lease {
    /// The claim of the worker that accepted the run.
    pub(crate) fn first() -> Self {
        Self {
            worker: *WORKER,
            epoch: 1,
        }
    }

    /// This process's claim on a run after the given one.
    fn after(self) -> Self {
        Self {
            worker: *WORKER,
            epoch: self.epoch + 1,
        }
    }

    /// Which claim on the run this is.
    pub(crate) fn epoch(self) -> u64 {
        self.epoch
    }

    /// Who holds a row, if it says so.
    fn of(row: &Snapshot) -> Option<Self> {
        Self::deserialize(row.extra.get(BACKGROUND_RUN)?).ok()
    }

    /// Whether nobody else has claimed the row. A row that lost its record to a writer who does not know it is not
    /// claimed: only a row with one can be taken over.
    pub(crate) fn is_on(self, row: &Snapshot) -> bool {
        Self::of(row).is_none_or(|lease| lease == self)
    }

    /// The row with a new sign of life, if it is still pending and ours.
    pub(crate) fn renewed(self, row: Option<&Snapshot>, now: Timestamp) -> Option<Snapshot> {
        let row = row.filter(|row| row.status == SnapshotStatus::Pending && self.is_on(row))?;
        Some(Snapshot {
            heartbeat_at: Some(now),
            ..row.clone()
        })
    }
}

/// What a pending row says to workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunRecord {
    /// Which agent's run this is.
    pub(crate) agent: String,
    #[serde(flatten)]
    pub(crate) lease: Lease,
    /// How many workers have begun what is left of the run.
    pub(crate) attempts: u32,
    /// How many turns of the invocation came before the first of the inputs.
    pub(crate) turns: usize,
    /// What is left to be run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inputs: Vec<AgentInput>,
    /// The turn on the first of them, if it was under way when the run was accepted: whoever takes it up goes on with its
    /// journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) turn: Option<OpenTurn>,
    /// What the caller brought along, as far as the agent has it recorded.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) context: Map<String, Value>,
    /// The tenant that came with the call, where the run is not stored as that tenant's: agents that the run calls may
    /// work for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<Scope>,
}

impl RunRecord {
    /// What a row says; `None` if no worker of ours wrote it.
    pub(crate) fn of(row: &Snapshot) -> Option<Self> {
        Self::deserialize(row.extra.get(BACKGROUND_RUN)?).ok()
    }

    /// Puts the record in a row, in the place of an earlier one.
    pub(crate) fn put(&self, row: &mut Snapshot) {
        let record = serde_json::to_value(self).expect("a record is plain data");
        row.extra.insert(BACKGROUND_RUN.to_owned(), record);
    }

    /// The row as it says how far the run came, if it is still pending and the lease's.
    ///
    /// The turns that ended count as the work of this worker: whoever takes over has all attempts for the rest.
    pub(crate) fn advanced(
        lease: Lease,
        row: Option<&Snapshot>,
        turns: usize,
        inputs: &[AgentInput],
        state: &SessionState,
        now: Timestamp,
    ) -> Option<Snapshot> {
        let mut row = lease.renewed(row, now)?;
        let record = Self {
            attempts: 1,
            turns,
            inputs: inputs.to_vec(),
            turn: None,
            ..Self::of(&row)?
        };
        record.put(&mut row);
        row.state = Some(state.clone());
        Some(row)
    }

    /// The record after this process has claimed the run.
    pub(crate) fn claimed(&self) -> Self {
        Self {
            lease: self.lease.after(),
            attempts: self.attempts + 1,
            ..self.clone()
        }
    }

    /// Takes the record out of a row, and the state that goes with it: what is left is for everybody.
    pub(crate) fn clear(row: &mut Snapshot) {
        if row.extra.shift_remove(BACKGROUND_RUN).is_some() {
            row.state = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(record: Option<&RunRecord>) -> Snapshot {
        let mut row = Snapshot::new("run".into(), "s".into(), Timestamp::UNIX_EPOCH);
        row.status = SnapshotStatus::Pending;
        if let Some(record) = record {
            record.put(&mut row);
        }
        row
    }

    fn record() -> RunRecord {
        RunRecord {
            agent: "chef".into(),
            lease: Lease::first(),
            attempts: 1,
            turns: 2,
            inputs: vec!["soup".into()],
            turn: None,
            context: Map::new(),
            tenant: Some(Scope::new("acme")),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_put() {
        let record = record();

        assert_eq!(RunRecord::of(&row(Some(&record))), Some(record));
        assert_eq!(RunRecord::of(&row(None)), None);
    }

    #[test]
    fn a_claim_fences_the_worker_before_it_even_in_one_process() {
        let (first, second) = (record(), record().claimed());
        let taken = row(Some(&second));

        assert!(second.lease.is_on(&taken) && !first.lease.is_on(&taken));
        assert!(first.lease.renewed(Some(&taken), Timestamp::UNIX_EPOCH).is_none());
        assert!(
            RunRecord::advanced(
                first.lease,
                Some(&taken),
                3,
                &[],
                &SessionState::default(),
                Timestamp::UNIX_EPOCH
            )
            .is_none()
        );
    }

    #[test]
    fn progress_gives_the_rest_of_the_run_all_its_attempts() {
        let second = record().claimed();

        let advanced = RunRecord::advanced(
            second.lease,
            Some(&row(Some(&second))),
            3,
            &["bread".into()],
            &SessionState::default(),
            Timestamp::UNIX_EPOCH,
        );

        let after = RunRecord::of(&advanced.unwrap()).unwrap();
        assert_eq!((second.attempts, after.attempts), (2, 1));
        assert_eq!((after.turns, after.inputs), (3, vec!["bread".into()]));
        assert_eq!(after.lease, second.lease);
    }

    #[test]
    fn a_row_that_is_over_is_not_renewed() {
        let record = record();
        let mut aborted = row(Some(&record));
        aborted.status = SnapshotStatus::Aborted;

        assert!(
            record
                .lease
                .renewed(Some(&aborted), Timestamp::UNIX_EPOCH)
                .is_none()
        );
    }
}
