//! The ways in which a stored snapshot may change.
//!
//! A [`Transition`] is the only way in which the framework changes a stored snapshot. It is data:
//! [`Transition::apply`] computes the new snapshot from the stored one, without clock, randomness or I/O. A
//! store calls it inside its own atomic step, so what it decides holds for every process that shares the
//! store.
#![doc = include_str!("transitions.md")]

use everturn_ai::UsageTotal;
use everturn_core::{Error, Result, RuntimeError};
use jiff::Timestamp;
use serde_json::Value;

use super::{Lease, OpenTurn, Rewind, Snapshot};
use crate::storage::content_id::holds_the_same;
use crate::{AgentFinishReason, AgentInput, SessionId, SessionState, SnapshotStatus};

/// A change of one stored snapshot.
#[derive(Debug, Clone)]
pub(crate) enum Transition {
    /// Writes a snapshot that an invocation takes: of a turn, of a round inside it, or of a background run
    /// that begins.
    Create {
        snapshot: Box<Snapshot>,
        /// Whether the id is the hash of the state, so that a stored snapshot with this id is the same one.
        named_by_content: bool,
    },
    /// Writes a snapshot that comes from another session or store.
    Import { snapshot: Box<Snapshot> },
    /// Shows that the worker of a run is alive.
    Heartbeat { lease: Lease, now: Timestamp },
    /// Records that a turn of a run ended while inputs are left.
    Advance {
        lease: Lease,
        progress: Box<Progress>,
        now: Timestamp,
    },
    /// Ends a run.
    Finish {
        lease: Lease,
        end: Box<RunEnd>,
        now: Timestamp,
    },
    /// Aborts a run.
    Abort { now: Timestamp },
    /// Takes a run over from a worker whose lease has lapsed, or ends it as failed if it was begun too often.
    TakeOver {
        /// The lease that has lapsed.
        lapsed: Lease,
        /// A run with a later heartbeat has a living worker.
        silent_since: Timestamp,
        /// The number of workers that may begin the same work.
        attempts: u32,
        /// The state at which the run began, for a snapshot that holds none when the run ends as failed.
        begun_at: Option<Box<SessionState>>,
        now: Timestamp,
    },
    /// Ends a run as failed that its new worker cannot continue.
    GiveUp {
        lease: Lease,
        error: Error,
        now: Timestamp,
    },
    /// Records, in the session's latest snapshot, which snapshots a rewind keeps.
    DecideRewind {
        rewind: Rewind,
        /// Whether that snapshot was superseded and becomes the latest by this.
        recovers: bool,
    },
    /// Marks a snapshot as superseded, or removes the mark.
    Orphan { orphaned: bool },
    /// Removes the decision of a rewind from the session's latest snapshot, once all others are marked.
    FinishRewind { rewind: Rewind, orphaned: bool },
    /// Changes labels or the note. It is the only change of a final snapshot that users request.
    Annotate { annotation: Annotation, now: Timestamp },
}

/// The progress of a run.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    /// The number of turns of the invocation that have ended.
    pub(crate) turns: usize,
    /// The inputs that are left.
    pub(crate) inputs: Vec<AgentInput>,
    /// The state from which the first of them continues.
    pub(crate) state: SessionState,
    /// The usage of the session until then.
    pub(crate) usage: Option<UsageTotal>,
}

/// The end of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunEnd {
    pub(crate) status: SnapshotStatus,
    pub(crate) finish_reason: Option<AgentFinishReason>,
    pub(crate) error: Option<RuntimeError>,
    pub(crate) state: SessionState,
    /// The value that the agent's function returned.
    pub(crate) output: Option<Value>,
    /// The usage of the session until then.
    pub(crate) usage: Option<UsageTotal>,
    /// The turn that did not end, if a turn that continues from the state resumes it.
    pub(crate) turn: Option<OpenTurn>,
}

/// The field of a finished run's snapshot that holds the value which the agent's function returned.
pub(crate) const RUN_OUTPUT: &str = "output";

impl Transition {
    /// Computes the snapshot to write in the place of the stored one, `current`; `None` if nothing is to be
    /// written.
    ///
    /// # Errors
    /// According to the table in the module's documentation.
    pub(crate) fn apply(&self, current: Option<&Snapshot>) -> Result<Option<Snapshot>> {
        match self {
            Self::Create {
                snapshot,
                named_by_content,
            } => match current.filter(|_| *named_by_content) {
                // The id is the hash of the state, so the stored snapshot is this one and nothing needs to be
                // written.
                Some(current) => check_same_state(current, snapshot).map(|()| None),
                None => Ok(Some(Snapshot::clone(snapshot))),
            },
            Self::Import { snapshot } => match current {
                None => Ok(Some(Snapshot::clone(snapshot))),
                Some(current) => Err(already_there(current)),
            },
            Self::Heartbeat { lease, now } => Ok(held(current, *lease)?.map(|run| Snapshot {
                heartbeat_at: Some(*now),
                ..run.clone()
            })),
            Self::Advance { lease, progress, now } => match held(current, *lease)? {
                Some(run) => advance(run, progress, *now),
                None => Ok(None),
            },
            Self::Finish { lease, end, now } => match current {
                Some(run) => finish(run, *lease, end, *now),
                None => Ok(None),
            },
            // An abort needs no lease: clients may abort a run of any worker.
            Self::Abort { now } => Ok(pending(current).map(|run| Snapshot {
                status: SnapshotStatus::Aborted,
                updated_at: Some(*now),
                ..run.clone()
            })),
            Self::TakeOver {
                lapsed,
                silent_since,
                attempts,
                begun_at,
                now,
            } => {
                let is_silent = |run: &&Snapshot| run.heartbeat_at.is_some_and(|beat| beat < *silent_since);
                match pending(current).filter(is_silent) {
                    Some(run) => {
                        let taken = take_over(run, *lapsed, *attempts, *now)?;
                        Ok(taken.map(|run| with_state_if_failed(run, begun_at.as_deref())))
                    }
                    None => Ok(None),
                }
            }
            Self::GiveUp { lease, error, now } => {
                Ok(held(current, *lease)?.map(|run| failed(run, error, *now)))
            }
            Self::DecideRewind { rewind, recovers } => Ok(current.map(|tip| {
                let mut tip = tip.clone();
                tip.orphaned &= !recovers;
                tip.set_unfinished_rewind(rewind.clone());
                tip
            })),
            Self::Orphan { orphaned } => {
                let changes =
                    |snapshot: &&Snapshot| snapshot.orphaned != *orphaned || snapshot.has_unfinished_rewind();
                Ok(current
                    .filter(changes)
                    .map(|snapshot| without_rewind(snapshot, *orphaned)))
            }
            Self::FinishRewind { rewind, orphaned } => match current {
                // Another rewind may have been decided since, and must not be removed with this one.
                Some(tip) if tip.unfinished_rewind()? == Some(rewind) => {
                    Ok(Some(without_rewind(tip, *orphaned)))
                }
                _ => Ok(None),
            },
            Self::Annotate { annotation, now } => {
                let Some(current) = current else {
                    return Ok(None);
                };
                let mut annotated = current.clone();
                if !annotation.write_on(&mut annotated)? {
                    return Ok(None);
                }
                // The clocks of processes differ: an annotation must not make a snapshot older than it was.
                annotated.updated_at = current.updated_at.max(Some((*now).max(current.created_at)));
                Ok(Some(annotated))
            }
        }
    }
}

fn pending(current: Option<&Snapshot>) -> Option<&Snapshot> {
    current.filter(|snapshot| snapshot.status == SnapshotStatus::Pending)
}

/// Returns the snapshot if its run is in progress and no other worker holds the lease.
fn held(current: Option<&Snapshot>, lease: Lease) -> Result<Option<&Snapshot>> {
    match pending(current) {
        Some(run) if lease.holds(run)? => Ok(Some(run)),
        _ => Ok(None),
    }
}

/// Records progress. The turns that ended count as the work of this worker: a worker that takes the run over
/// has all attempts for the rest.
fn advance(run: &Snapshot, progress: &Progress, now: Timestamp) -> Result<Option<Snapshot>> {
    let Some(noted) = run.background_run()? else {
        return Ok(None);
    };
    let mut noted = noted.clone();
    noted.attempts = 1;
    noted.turns = progress.turns;
    noted.inputs.clone_from(&progress.inputs);
    // The first input that is left has not begun, so no journal belongs to it.
    noted.turn = None;
    noted.used_in_turn = None;
    let mut run = Snapshot {
        heartbeat_at: Some(now),
        state: Some(progress.state.clone()),
        ..run.clone()
    };
    run.set_background_run(noted);
    run.set_usage(progress.usage);
    Ok(Some(run))
}

/// Ends a run. A run that was aborted ends as aborted, however its function ended; its snapshot then records
/// the end.
fn finish(run: &Snapshot, lease: Lease, end: &RunEnd, now: Timestamp) -> Result<Option<Snapshot>> {
    let is_unfinished = match run.status {
        SnapshotStatus::Pending | SnapshotStatus::Aborting => true,
        // An abort sets the status alone. The worker adds the finish reason once, when its function has
        // returned.
        SnapshotStatus::Aborted => run.finish_reason != Some(AgentFinishReason::Aborted),
        _ => false,
    };
    if !is_unfinished || !lease.holds(run)? {
        return Ok(None);
    }
    let mut last = Snapshot {
        updated_at: Some(now.max(run.created_at)),
        heartbeat_at: None,
        ..run.clone()
    };
    last.clear_background_run();
    if run.status == SnapshotStatus::Pending {
        last.status = end.status;
        last.finish_reason = end.finish_reason;
        last.error.clone_from(&end.error);
        if let Some(output) = &end.output {
            last.extra.insert(RUN_OUTPUT.to_owned(), output.clone());
        }
        last.set_usage(end.usage);
    } else {
        last.status = SnapshotStatus::Aborted;
        last.finish_reason = Some(AgentFinishReason::Aborted);
    }
    last.state = Some(end.state.clone());
    if let Some(turn) = &end.turn {
        last.set_open_turn(turn.clone());
    }
    Ok(Some(last))
}

fn take_over(run: &Snapshot, lapsed: Lease, attempts: u32, now: Timestamp) -> Result<Option<Snapshot>> {
    // Another worker may have been faster: then the lease is no longer the one that lapsed.
    let Some(noted) = run.background_run()?.filter(|noted| noted.lease == lapsed) else {
        return Ok(None);
    };
    if noted.attempts >= attempts {
        return Ok(Some(failed(run, &begun_too_often(noted.attempts), now)));
    }
    let mut noted = noted.clone();
    noted.lease = lapsed.next();
    noted.attempts += 1;
    let mut run = Snapshot {
        heartbeat_at: Some(now),
        ..run.clone()
    };
    run.set_background_run(noted);
    Ok(Some(run))
}

/// Gives a run that has failed the state at which it began, if it made no progress.
fn with_state_if_failed(mut run: Snapshot, begun_at: Option<&SessionState>) -> Snapshot {
    if run.status == SnapshotStatus::Failed && run.state.is_none() {
        run.state = begun_at.cloned();
    }
    run
}

/// Returns the snapshot of a failed run. It keeps the state that was recorded for the next worker.
fn failed(run: &Snapshot, error: &Error, now: Timestamp) -> Snapshot {
    let mut last = Snapshot {
        status: SnapshotStatus::Failed,
        finish_reason: Some(AgentFinishReason::Failed),
        error: Some(error.for_operator()),
        updated_at: Some(now.max(run.created_at)),
        heartbeat_at: None,
        ..run.clone()
    };
    last.clear_background_run();
    // Clearing the run removes the state that was kept for its next worker, and here it is the best result
    // there is.
    last.state.clone_from(&run.state);
    last
}

fn without_rewind(snapshot: &Snapshot, orphaned: bool) -> Snapshot {
    let mut marked = Snapshot {
        orphaned,
        ..snapshot.clone()
    };
    marked.clear_unfinished_rewind();
    marked
}

/// Checks that two states with the same hash are equal: they may differ in numbers that the hash does not
/// distinguish.
fn check_same_state(current: &Snapshot, snapshot: &Snapshot) -> Result<()> {
    if let (Some(current), Some(state)) = (&current.state, &snapshot.state)
        && holds_the_same(current, state)
    {
        return Ok(());
    }
    Err(Error::failed_precondition(format!(
        "snapshot '{}' holds a state that differs in numbers beyond 2^53, which content-addressed ids cannot tell apart; \
         keep such numbers as text",
        snapshot.snapshot_id
    )))
}

fn already_there(current: &Snapshot) -> Error {
    Error::already_exists(format!(
        "there is a snapshot '{}' already, in session '{}'",
        current.snapshot_id,
        current.session_id.as_ref().map_or("", SessionId::as_str),
    ))
}

fn begun_too_often(attempts: u32) -> Error {
    let times = if attempts == 1 {
        "once".to_owned()
    } else {
        format!("{attempts} times")
    };
    Error::unavailable(format!(
        "the run was given up: it was started {times}, and its worker was lost each time"
    ))
}

/// The greatest number of labels on a snapshot.
pub const MAX_LABELS: usize = 32;

/// A change of a snapshot's labels or of its note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Annotation {
    /// Adds a label after the others.
    Label(String),
    /// Removes a label.
    Unlabel(String),
    /// Replaces the note.
    Note(Option<String>),
}

impl Annotation {
    /// Annotates a snapshot; returns whether that changed it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the snapshot has [`MAX_LABELS`] labels and would get another.
    fn write_on(&self, snapshot: &mut Snapshot) -> Result<bool> {
        match self {
            Self::Label(label) => {
                if snapshot.labels.contains(label) {
                    return Ok(false);
                }
                if snapshot.labels.len() >= MAX_LABELS {
                    return Err(Error::invalid_argument(format!(
                        "snapshot '{}' has {MAX_LABELS} labels: take one off first",
                        snapshot.snapshot_id
                    ))
                    .with_public());
                }
                snapshot.labels.push(label.clone());
                Ok(true)
            }
            Self::Unlabel(label) => {
                let before = snapshot.labels.len();
                snapshot.labels.retain(|existing| existing != label);
                Ok(snapshot.labels.len() != before)
            }
            Self::Note(note) => {
                let is_changed = snapshot.note != *note;
                snapshot.note.clone_from(note);
                Ok(is_changed)
            }
        }
    }
}

#[cfg(test)]
mod tests;
