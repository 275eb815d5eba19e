//! The lease on a background run, and the notes from which another worker continues it.
//!
//! Both are kept in the run's pending snapshot. The worker of the run holds its *lease*: the snapshot names
//! the worker and the epoch of the lease, and its heartbeat shows that the worker is alive. A *takeover*
//! writes another worker and a higher epoch there, in one atomic step. Every later write of the first worker
//! compares the lease inside the store's own step, finds another, and writes nothing, however long the worker
//! slept.

use std::sync::LazyLock;

use everturn_ai::{JsonObject, UsageTotal};
use everturn_core::{Principal, Result, Scope};
use everturn_macros::wire;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Snapshot;
use crate::AgentInput;

/// The name of this process in leases.
static WORKER: LazyLock<Uuid> = LazyLock::new(Uuid::new_v4);

/// A worker's timed hold on a background run. It lapses when the run's heartbeat stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    worker: Uuid,
    /// Grows with every takeover, so that two leases of one process differ too.
    epoch: u64,
}

impl Lease {
    /// Creates the lease of this process on a run that it accepts.
    pub fn first() -> Self {
        Self {
            worker: *WORKER,
            epoch: 1,
        }
    }

    /// Creates the lease of this process on a run that it takes over from the holder of `self`.
    pub(super) fn next(self) -> Self {
        Self {
            worker: *WORKER,
            epoch: self.epoch + 1,
        }
    }

    /// Returns the number of the lease among all leases on the run, counted from one.
    pub fn epoch(self) -> u64 {
        self.epoch
    }

    /// Returns whether no other worker holds the run behind a snapshot.
    ///
    /// A pending snapshot without a lease lost it to a writer who does not support leases. It counts as this
    /// worker's, because only a run with a lease can be taken over.
    ///
    /// # Errors
    /// `DATA_LOSS` if the snapshot's lease cannot be read.
    pub(crate) fn holds(self, snapshot: &Snapshot) -> Result<bool> {
        Ok(snapshot.lease()?.is_none_or(|lease| lease == self))
    }
}

/// The background run behind a pending snapshot, for its workers.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BackgroundRun {
    /// The agent whose run this is.
    pub(crate) agent: String,
    #[serde(flatten)]
    pub(crate) lease: Lease,
    /// The number of workers that have begun the rest of the run.
    pub(crate) attempts: u32,
    /// The number of turns of the invocation before the first of the inputs.
    pub(crate) turns: usize,
    /// The inputs that are left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inputs: Vec<AgentInput>,
    /// The turn on the first input, if it was in progress when the run was accepted: the worker that takes it
    /// up continues its journal.
    pub(crate) turn: Option<OpenTurn>,
    /// The caller's context values that the agent records.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) context: Map<String, Value>,
    /// The tenant that came with the call, if the run is stored under another: agents that the run calls may
    /// need it.
    pub(crate) tenant: Option<Scope>,
    /// The identified caller, on whose behalf the run acts.
    pub(crate) principal: Option<Principal>,
    /// Whether the run is a client's, also if the client was not identified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) of_client: bool,
    /// Whether the inputs are the program's own, and not of a client of the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_program: bool,
    /// The usage of the conversation when the invocation began that became the run.
    pub(crate) used_before: Option<UsageTotal>,
    /// The usage of the turn that was in progress when the run was accepted. The run's usage contains it, and
    /// so does the turn's account in the ledger.
    pub(crate) used_in_turn: Option<UsageTotal>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub(crate) extra: JsonObject,
}

/// A turn that was in progress when a snapshot was taken: its journal, and how much of the journal the
/// snapshot holds.
///
/// A turn that continues from the snapshot continues the same journal, so it repeats nothing that came after
/// the snapshot.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenTurn {
    /// The turn's part of the journal's key.
    pub(crate) journal: String,
    /// The number of journal records whose effects are part of the snapshot.
    pub(crate) records: u64,
    /// The turn's name; absent if it is that of the journal.
    pub(crate) turn: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    extra: JsonObject,
}

impl OpenTurn {
    /// Creates a reference to the turn with this journal, of which so many records are part of the snapshot.
    pub(crate) fn new(journal: &str, records: u64) -> Self {
        Self {
            journal: journal.to_owned(),
            records,
            turn: None,
            extra: JsonObject::new(),
        }
    }

    /// Sets the turn's name.
    pub(crate) fn named(self, turn: &str) -> Self {
        Self {
            turn: Some(turn.to_owned()).filter(|turn| *turn != self.journal),
            ..self
        }
    }
}
