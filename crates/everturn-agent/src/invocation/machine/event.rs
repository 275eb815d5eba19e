//! What can happen to an invocation.

/// Something that happened, as the driver reports it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Event<I, E> {
    /// The client sent an input that does not detach.
    Input(I),
    /// The client sent a detach directive. With it come the inputs to be run in the background: the one that carried
    /// the directive, then all that could be read without waiting. Those without a payload are left out, and the
    /// directive is cleared on the others. The driver reads no further.
    Detach(Vec<I>),
    /// The client ended its input.
    InputClosed,
    /// The client sent something that is no valid input; the invocation is rejected with this error.
    InputRejected(E),
    /// Nobody waits for the output any more: cancelled, disconnected, or past the deadline.
    ClientGone(E),

    /// The function's turn loop asks for an input.
    NextInput,
    /// `StartTurn` found that the function no longer waits, and the turn did not begin; the input comes back.
    TurnRefused(I),
    /// The turn that was started last came to its end, or could not begin.
    TurnEnded(TurnOutcome),
    /// All tools that the model asked for have answered, and the generation waits for `SettleIteration` before the
    /// model sees the answers. Raised for generations of a turn that has begun and not ended; others go on by themselves.
    IterationEnded,
    /// The function returned, failed or panicked.
    Returned(Result<(), E>),

    /// A transform failed; what it should have transformed was withheld.
    TransformFailed(E),
    /// Answers `Drain`.
    Drained,

    /// Answers `CommitTurn`: the turn is durable.
    TurnCommitted,
    /// Answers `CommitIteration`: the row is durable, or none was wanted.
    IterationCommitted,
    /// Answers `CommitEnd`: the row is durable, or none was wanted.
    EndCommitted,
    /// Answers whichever of `CommitTurn`, `CommitIteration` and `CommitEnd` is in flight: the row could not be written.
    CommitFailed(E),
    /// Answers `WritePending`.
    PendingWritten,
    /// Answers `WritePending`: the row could not be written.
    PendingFailed(E),
    /// Answers `RecordProgress`: the row says how far the run came, or could not be written, which costs a worker that
    /// takes the run over some turns and nothing else. If the row is not ours any more, `AbortSeen` or `LeaseLost`
    /// answer instead.
    ProgressRecorded,
    /// Answers `FinalizeRow`.
    FinalizeWritten,
    /// Answers `FinalizeRow`: the row could not be written, or another worker owns it. It ages into `expired`.
    FinalizeFailed(E),

    /// The pending row's heartbeat should be renewed.
    HeartbeatDue,
    /// The pending row is `aborted`.
    AbortSeen,
    /// The pending row is gone, or another worker owns it.
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
