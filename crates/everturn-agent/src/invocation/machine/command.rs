//! The commands that the machine gives its driver.

use super::TurnOutcome;

/// A command to the driver. Commands are executed in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Command<I, E> {
    /// Reserve a new snapshot id, for a turn or a background run, and request the session's turn lock under
    /// it. Answered by `LockGranted` or `LockRefused`: at once, unless turns that find the lock taken wait
    /// for it. An invocation that holds the lock already is granted it again.
    TakeLock,
    /// Wait for the turn lock no longer. `TakeLock` is then not answered.
    LeaveQueue,
    /// Let other turns have the session. Holding no lock is fine.
    ReleaseLock,
    /// Hand the input to the waiting turn loop, with a turn context that names the snapshot. Answered by
    /// `TurnEnded`, or by `TurnRefused` if no loop is waiting.
    StartTurn {
        /// The turn's input.
        input: I,
        /// Where the turn's state will be found.
        snapshot: TurnSnapshot,
    },
    /// Fail the waiting turn loop with this error: its turn could not begin. The turn counts as one of the
    /// invocation's.
    FailTurn(E),
    /// End the input of the waiting turn loop, if there is one.
    EndInput(EndOfInput),
    /// Make the turn that just succeeded durable: write its snapshot if there is a store and the snapshot
    /// policy takes one, and take the session's state as the last good one. Answered by `TurnCommitted` or
    /// `CommitFailed`, at once where there is nothing to write.
    CommitTurn,
    /// Keep the turn that just failed, or was stopped: write a snapshot with what the turn had committed and
    /// its error, if it had committed anything. Answered by `TurnKept` or `CommitFailed`, which changes
    /// nothing for the turn.
    KeepTurn,
    /// Write a snapshot in the middle of the turn, for the generation that reported `RoundEnded` first of
    /// those that wait, if the snapshot policy takes one. Answered by `RoundCommitted` or `CommitFailed`.
    CommitRound,
    /// Resume the generation that was the first waiting one to report `RoundEnded`; on `Err`, it fails with
    /// this error.
    SettleRound(Result<(), E>),
    /// Write a snapshot for the end of the invocation, if the snapshot policy takes one. Answered by
    /// `EndCommitted` or `CommitFailed`.
    CommitEnd,
    /// Queue the `turnEnd` chunk behind every chunk of its turn: with the snapshot's id and the turn's reason
    /// if it succeeded, with `failed` or `aborted` if not, and then with an id only if the turn was kept.
    SendTurnEnd(TurnOutcome),
    /// Let the turn loop that reported `TurnEnded` continue: with the outcome it reported or, on `Err`, with
    /// this error because the turn could not be made durable.
    SettleTurn(Result<(), E>),

    /// Send the client nothing more: drop queued and later chunks, and release the code that waits to send
    /// one. The changes that the chunks report still take place.
    SilenceClient,
    /// Let the queued chunks reach the client, then apply the state transform to the output's state. Answered
    /// by `Drained` or `TransformFailed`.
    Drain,
    /// Cancel the work's context for this reason: tools, model calls and the function see it.
    CancelWork(Cancellation<E>),

    /// The invocation continues without its client: raise `ClientGone` no more, and show chunks to the
    /// watchers of the run.
    LetClientGo,
    /// Write the pending snapshot of the run under the reserved id, as a child of the last committed
    /// snapshot. It holds the state at the [takeover point](super::TakeoverPoint) if that snapshot does not.
    /// Answered by `PendingWritten` or `PendingFailed`.
    WritePending {
        /// Every input accepted and not committed, the running turn's first: the inputs that another worker
        /// would have to run.
        inputs: Vec<I>,
    },
    /// Record in the pending snapshot, if the run is still this worker's, the live state and the inputs that
    /// are left, so that a worker that takes the run over does not repeat the turns that ended. Answered by
    /// `ProgressRecorded`, `AbortSeen` or `LeaseLost`.
    RecordProgress {
        /// The inputs that were not run yet.
        inputs: Vec<I>,
    },
    /// Raise `HeartbeatDue` at every interval from now on; the snapshot just written counts as the first
    /// beat.
    StartHeartbeat,
    /// Raise `HeartbeatDue` no more.
    StopHeartbeat,
    /// Watch the pending snapshot's status, beginning with the current one, and raise `AbortSeen` when it is
    /// `aborted`.
    SubscribeStatus,
    /// Watch the status no more.
    UnsubscribeStatus,
    /// Renew the heartbeat if the snapshot is still pending and the run this worker's. If not, raise
    /// `AbortSeen` or `LeaseLost`; other errors are logged and otherwise ignored. Needs no answer.
    Beat,
    /// Rewrite the pending snapshot with the run's end and the live state, in one atomic step that keeps the
    /// status `aborted` and writes nothing if the lease was lost. Answered by `FinalizeWritten` or
    /// `FinalizeFailed`.
    Finalize(Ending<E>),

    /// Give the caller its answer; nothing goes to the client after it. If the caller has left, drop the
    /// answer.
    Resolve(Resolution<E>),
    /// The invocation has ended: release the session, the client stream and the input, and cancel the work's
    /// context for the remaining tasks of the function. Always the last command.
    Release,
}

/// Where the state of a turn is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TurnSnapshot {
    /// In a separate snapshot, under the id that was reserved with the turn lock.
    Own,
    /// In the pending snapshot of the background run.
    OfRun,
}

/// Why the turn loop gets no further input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EndOfInput {
    /// All inputs were run and none can come: the loop ends normally.
    Closed,
    /// The work is cancelled: the loop ends with a cancellation error.
    Cancelled,
}

/// Why work is cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Cancellation<E> {
    /// The invocation cannot complete.
    Stopped(Cause<E>),
    /// The background run was aborted.
    Aborted,
    /// Another worker has the background run.
    Fenced,
}

/// How a background run ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Ending<E> {
    /// The function returned normally.
    Completed,
    /// The function failed.
    Failed(E),
    /// An abort was seen; with the function's error, if it failed.
    Aborted(Option<E>),
}

/// The answer to the caller of an invocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Resolution<E> {
    /// The output of a function that returned normally.
    Completed,
    /// An output with `failed` or `aborted`, and the last good state.
    Failed(Cause<E>),
    /// An output that names the pending snapshot.
    Detached,
    /// An error and no output.
    Rejected(Cause<E>),
}

/// Why an invocation did not complete.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Cause<E> {
    /// The function failed or panicked.
    Function(E),
    /// A stream or state transform failed.
    Transform(E),
    /// The first turn was refused the session's turn lock.
    LockRefused(E),
    /// The caller cancelled, disconnected, or ran out of time.
    ClientGone(E),
    /// A detach needs a store, and the agent has none.
    DetachWithoutStore,
    /// A detach needs a store that pushes status changes, and the agent's does not.
    DetachWithoutSubscription,
    /// The pending snapshot of a detach could not be written.
    PendingSnapshot(E),
}
