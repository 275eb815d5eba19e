//! What an invocation asks of its driver.

use super::TurnOutcome;

/// Something the driver must do. Commands are executed in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Command<I, E> {
    /// Hand the input to the waiting turn loop, with a turn context whose snapshot id is that of `row`. Answered by
    /// `TurnEnded`, or by `TurnRefused` if nobody waits any more; by neither if the work is cancelled first.
    StartTurn {
        /// The turn's input.
        input: I,
        /// Where the turn's state will be found.
        row: TurnRow,
    },
    /// Tell the waiting turn loop that no input comes; nobody waiting is fine.
    EndInput(EndOfInput),
    /// Make the turn that just succeeded durable: write its row if there is a store and the snapshot policy wants one,
    /// and take the session's state as the last good one. Answered by `TurnCommitted` or `CommitFailed`, at once where
    /// there is nothing to write.
    CommitTurn,
    /// Write a row in the middle of the turn, for the generation that reported `IterationEnded` first of those that
    /// wait, if the snapshot policy wants one. Answered by `IterationCommitted` or `CommitFailed`.
    CommitIteration,
    /// Let the generation go on that reported `IterationEnded` first of those that wait; on `Err`, it fails with this
    /// error. Nobody waiting is fine.
    SettleIteration(Result<(), E>),
    /// Write a row for the end of the invocation, if the snapshot policy wants one. Answered by `EndCommitted` or
    /// `CommitFailed`.
    CommitEnd,
    /// Queue the `turnEnd` chunk behind every chunk of its turn: with the row's id and the turn's reason if it
    /// succeeded, with `failed` and no id if not.
    SendTurnEnd(TurnOutcome),
    /// Let the turn loop that reported `TurnEnded` go on: with the outcome it reported, or, on `Err`, with this error
    /// because the turn could not be made durable. Nobody waiting is fine.
    SettleTurn(Result<(), E>),

    /// Send the client nothing more: drop chunks that are queued or still come, and release whoever waits to send one.
    /// What a chunk means for the session's state still happens.
    SuppressWire,
    /// Let the queued chunks reach the client, then apply the state transform to the output's state. Answered by
    /// `Drained` or `TransformFailed`.
    Drain,
    /// Cancel the work's context: tools, model calls and the function see it. A turn that did not begin yet does not
    /// begin any more: the turn loop that waits for it ends with a cancellation error.
    CancelWork,

    /// Write the row of the detached run, a child of the last committed row, ignoring the caller's cancellation; if that
    /// one is in the middle of a turn, the row says where the turn began. Stop following that cancellation and writing turn
    /// rows. Answered by `PendingWritten` or `PendingFailed`.
    WritePending {
        /// The row's id.
        id: PendingId,
        /// Every input accepted and not committed, the running turn's first: what another worker would have to run.
        inputs: Vec<I>,
    },
    /// Record in the pending row, if it is still ours, the live state and the inputs that are left, so that a worker
    /// that takes the run over does not repeat the turns that ended. Answered by `ProgressRecorded`, `AbortSeen` or
    /// `LeaseLost`.
    RecordProgress {
        /// The inputs that were not run yet.
        inputs: Vec<I>,
    },
    /// Raise `HeartbeatDue` at every interval from now on; the row just written counts as the first beat.
    StartHeartbeat,
    /// Raise `HeartbeatDue` no more.
    StopHeartbeat,
    /// Watch the pending row's status, beginning with the current one, and raise `AbortSeen` when it is `aborted`.
    SubscribeStatus,
    /// Watch the row's status no more.
    UnsubscribeStatus,
    /// Renew the heartbeat of the row if it is still pending and ours. If not, raise `AbortSeen` or `LeaseLost`; other
    /// errors are logged and otherwise ignored. Needs no answer.
    Beat,
    /// Rewrite the pending row with the run's end and the live state, in one atomic step that keeps the status of a
    /// row that is already `aborted` and writes nothing if the lease was lost. Answered by `FinalizeWritten` or
    /// `FinalizeFailed`.
    FinalizeRow(Ending<E>),

    /// Give the caller its answer; nothing goes to the client after it. If the caller is gone, drop the answer.
    Resolve(Resolution<E>),
    /// The invocation is over: let go of the session, the wire and the input, and cancel the work's context for
    /// whatever the function left behind. Always the last command.
    Release,
}

/// Where the state of a turn is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TurnRow {
    /// In a row of its own, under an id reserved when the turn starts.
    Own,
    /// In the row of the detached run.
    Pending,
}

/// Why the turn loop gets no further input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EndOfInput {
    /// All inputs were run and none can come: the loop ends normally.
    Closed,
    /// The work is cancelled: the loop ends with a cancellation error.
    Cancelled,
}

/// The id under which the row of a detached run is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PendingId {
    /// The one reserved for the running turn, so that what its turn context promised holds.
    OfRunningTurn,
    /// A new one.
    Fresh,
}

/// How a detached run ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Ending<E> {
    /// The function returned normally.
    Completed,
    /// The function failed.
    Failed(E),
    /// An abort was seen; with the function's error, if it failed.
    Aborted(Option<E>),
}

/// What the caller of an invocation gets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Resolution<E> {
    /// The output of a function that returned normally.
    Completed,
    /// An output that says `failed`, with the last good state.
    Failed(Cause<E>),
    /// An output that names the pending row.
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
    /// The client sent something that is no valid input.
    InvalidInput(E),
    /// The caller cancelled, disconnected, or ran out of time.
    ClientGone(E),
    /// A detach needs a store, and the agent has none.
    DetachWithoutStore,
    /// A detach needs a store that pushes status changes, and the agent's does not.
    DetachWithoutSubscription,
    /// The pending row of a detach could not be written.
    PendingRow(E),
}
