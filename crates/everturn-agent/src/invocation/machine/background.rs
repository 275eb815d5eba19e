//! The phase of a background run, whose end is written to the pending snapshot.

use std::collections::VecDeque;

use super::{Cancellation, Command, EndOfInput, Ending, Event, Phase, Step, TurnSnapshot};

/// A run without a client. All inputs are known, so a function that asks is answered at once, or as soon as
/// its progress is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Background<I> {
    queue: VecDeque<I>,
    function: Function,
    /// Whether a turn has ended that the pending snapshot still lists among the inputs to run.
    unrecorded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    /// It runs outside any turn.
    Between,
    InTurn,
    /// It asks, and is answered when the pending snapshot records which turns are done.
    Recording,
}

impl<I: Clone> Background<I> {
    pub(super) fn new(queue: VecDeque<I>, turn: TurnAtDetach) -> Self {
        Self {
            queue,
            function: match turn {
                TurnAtDetach::Running => Function::InTurn,
                TurnAtDetach::None | TurnAtDetach::Ended => Function::Between,
            },
            unrecorded: turn == TurnAtDetach::Ended,
        }
    }

    /// Continues where another worker stopped: keeps the lease on the run and listens for an abort.
    pub(super) fn take_over<E>(queue: VecDeque<I>) -> Step<I, E> {
        Step::to(Self::new(queue, TurnAtDetach::None))
            .emit(Command::StartHeartbeat)
            .emit(Command::SubscribeStatus)
    }

    pub(super) fn handle<E>(mut self, event: Event<I, E>) -> Step<I, E> {
        match event {
            // A request in any other state is being answered already.
            Event::NextInput if self.function == Function::Between => self.ask(),
            Event::ProgressRecorded if self.function == Function::Recording => self.feed(),
            Event::TurnRefused(input) if self.function == Function::InTurn => {
                self.function = Function::Between;
                self.queue.push_front(input);
                Step::to(self)
            }
            // The outcome is not recorded: a failed turn ends the run only if the function returns its error.
            Event::TurnEnded(_) if self.function == Function::InTurn => {
                self.function = Function::Between;
                self.unrecorded = true;
                Step::to(self).emit(Command::SettleTurn(Ok(())))
            }
            // A run has one snapshot, so its rounds are not saved and the generation continues at once.
            Event::RoundEnded => Step::to(self).emit(Command::SettleRound(Ok(()))),
            Event::HeartbeatDue => Step::to(self).emit(Command::Beat),
            Event::AbortSeen => self.wind_down(WindingDown::Aborted),
            Event::LeaseLost => self.wind_down(WindingDown::Fenced),
            Event::Returned(result) => Finalizing::begin(result.into())
                .preceded_by([Command::StopHeartbeat, Command::UnsubscribeStatus]),
            _ => Step::to(self),
        }
    }

    /// Handles a function that requests the next turn. Only now is it certain that the turns before it stand,
    /// so only now is progress recorded; a run of one turn never records any.
    pub(super) fn ask<E>(mut self) -> Step<I, E> {
        if !self.unrecorded || self.queue.is_empty() {
            return self.feed();
        }
        self.unrecorded = false;
        self.function = Function::Recording;
        let inputs = self.queue.iter().cloned().collect();
        Step::to(self).emit(Command::RecordProgress { inputs })
    }

    /// Answers a function that asks.
    fn feed<E>(mut self) -> Step<I, E> {
        let Some(input) = self.queue.pop_front() else {
            return Step::to(self).emit(Command::EndInput(EndOfInput::Closed));
        };
        self.function = Function::InTurn;
        Step::to(self).emit(Command::StartTurn {
            input,
            snapshot: TurnSnapshot::OfRun,
        })
    }

    fn wind_down<E>(self, why: WindingDown) -> Step<I, E> {
        let step = why.begin();
        match self.function {
            Function::Recording => step.emit(Command::EndInput(EndOfInput::Cancelled)),
            Function::Between | Function::InTurn => step,
        }
    }
}

/// The state, by the time the pending snapshot was written, of the turn that ran when the detach was
/// accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TurnAtDetach {
    /// There was no turn.
    None,
    Running,
    /// The turn ended; the pending snapshot still lists its input.
    Ended,
}

/// The phase of a cancelled background run whose function has yet to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WindingDown {
    /// The snapshot is aborted; it gets a finish reason when the function returns.
    Aborted,
    /// Another worker has the run, and this one writes nothing more.
    Fenced,
}

impl WindingDown {
    fn begin<I, E>(self) -> Step<I, E> {
        Step::to(self)
            .emit(Command::StopHeartbeat)
            .emit(Command::UnsubscribeStatus)
            .emit(Command::CancelWork(match self {
                Self::Aborted => Cancellation::Aborted,
                Self::Fenced => Cancellation::Fenced,
            }))
    }

    pub(super) fn handle<I, E>(self, event: Event<I, E>) -> Step<I, E> {
        match (self, event) {
            (_, Event::NextInput) => Step::to(self).emit(Command::EndInput(EndOfInput::Cancelled)),
            (_, Event::TurnEnded(_)) => Step::to(self).emit(Command::SettleTurn(Ok(()))),
            (_, Event::RoundEnded) => Step::to(self).emit(Command::SettleRound(Ok(()))),
            (_, Event::LeaseLost) => Step::to(Self::Fenced),
            (Self::Aborted, Event::Returned(result)) => Finalizing::begin(Ending::Aborted(result.err())),
            (Self::Fenced, Event::Returned(_)) => Step::to(Phase::Released).emit(Command::Release),
            _ => Step::to(self),
        }
    }
}

/// The phase in which the end of a background run is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Finalizing;

impl Finalizing {
    pub(super) fn begin<I, E>(ending: Ending<E>) -> Step<I, E> {
        Step::to(Self).emit(Command::Finalize(ending))
    }

    pub(super) fn handle<I, E>(self, event: &Event<I, E>) -> Step<I, E> {
        match event {
            Event::FinalizeWritten | Event::FinalizeFailed(_) => {
                Step::to(Phase::Released).emit(Command::Release)
            }
            _ => Step::to(self),
        }
    }
}

impl<E> From<Result<(), E>> for Ending<E> {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Completed,
            Err(error) => Self::Failed(error),
        }
    }
}
