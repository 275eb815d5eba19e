//! The events of an invocation.

/// An event, as the driver reports it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Event<I, E> {
    /// The client sent an input that does not detach.
    Input(I),
    /// The client sent a detach directive. The event carries the inputs to be run in the background: the one
    /// with the directive, then all that could be read without waiting. Inputs without a payload are left
    /// out, and the directive is cleared on the others. The driver reads no further.
    Detach(Vec<I>),
    /// The client ended its input.
    InputClosed,
    /// The output has no receiver any more: cancelled, disconnected, or past the deadline.
    ClientGone(E),

    /// The function's turn loop requests an input.
    NextInput,
    /// Answers `TakeLock`: the invocation holds the session's turn lock.
    LockGranted,
    /// Answers `TakeLock`: another turn holds the session or has moved its tip, or the session cannot be
    /// resumed any more.
    LockRefused(E),
    /// Answers `StartTurn`: no turn loop is waiting, and the turn did not begin. The input comes back.
    TurnRefused(I),
    /// The turn that was started last came to its end.
    TurnEnded(TurnOutcome),
    /// A round ended: all tools that the model asked for have answered, and the generation waits for
    /// `SettleRound` before the model sees the answers. Raised for generations of a turn that has begun and
    /// not ended; others continue by themselves.
    RoundEnded,
    /// The function returned, failed or panicked.
    Returned(Result<(), E>),

    /// A transform failed; the chunk or state that it should have transformed was withheld.
    TransformFailed(E),
    /// Answers `Drain`.
    Drained,

    /// Answers `CommitTurn`: the turn stands.
    TurnCommitted(Commit),
    /// Answers `KeepTurn`.
    TurnKept(Commit),
    /// Answers `CommitRound`.
    RoundCommitted(Commit),
    /// Answers `CommitEnd`.
    EndCommitted(Commit),
    /// Answers the one of `CommitTurn`, `KeepTurn`, `CommitRound` and `CommitEnd` that is in flight: the
    /// snapshot could not be written.
    CommitFailed(E),
    /// Answers `WritePending`.
    PendingWritten,
    /// Answers `WritePending`: the snapshot could not be written.
    PendingFailed(E),
    /// Answers `RecordProgress`: the snapshot records the progress of the run. It is also the answer if the
    /// write failed, which costs a worker that takes the run over some turns and nothing else. If the run is
    /// no longer this worker's, `AbortSeen` or `LeaseLost` answer instead.
    ProgressRecorded,
    /// Answers `Finalize`.
    FinalizeWritten,
    /// Answers `Finalize`: the snapshot could not be written, or another worker has the run. It ages into
    /// `expired`.
    FinalizeFailed(E),

    /// The pending snapshot's heartbeat should be renewed.
    HeartbeatDue,
    /// The pending snapshot is `aborted`.
    AbortSeen,
    /// The pending snapshot was deleted, or another worker has the run.
    LeaseLost,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TurnOutcome {
    /// The handler returned normally.
    Succeeded,
    /// The handler failed, panicked or was dropped, or the turn could not be made durable.
    Failed,
}

/// The result of a commit that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Commit {
    /// A snapshot, which is durable.
    Snapshot,
    /// Nothing: there is no store, or the snapshot policy took none.
    Nothing,
}
