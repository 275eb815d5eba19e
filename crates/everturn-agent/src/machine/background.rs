//! The work goes on without a client, and its end is written to the pending row.

use std::collections::VecDeque;

use super::state::{Phase, Step};
use super::{Command, EndOfInput, Ending, Event, TurnRow};

/// All inputs are known, so a function that asks is answered at once: there is no request to remember.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Background<I> {
    queue: VecDeque<I>,
    turn_running: bool,
}

impl<I> Background<I> {
    pub(super) fn new(queue: VecDeque<I>, turn_running: bool) -> Self {
        Self { queue, turn_running }
    }

    /// Goes on where another worker stopped: keeps the lease on the row and listens for an abort.
    pub(super) fn take_over<E>(queue: VecDeque<I>) -> Step<I, E> {
        Step::to(Self::new(queue, false))
            .emit(Command::StartHeartbeat)
            .emit(Command::SubscribeStatus)
    }

    pub(super) fn handle<E>(mut self, event: Event<I, E>) -> Step<I, E> {
        match event {
            Event::NextInput if !self.turn_running => self.feed(),
            Event::TurnRefused(input) if self.turn_running => {
                self.turn_running = false;
                self.queue.push_front(input);
                Step::to(self)
            }
            Event::TurnEnded(_) if self.turn_running => {
                self.turn_running = false;
                Step::to(self).emit(Command::SettleTurn(Ok(())))
            }
            Event::IterationEnded => Step::to(self).emit(Command::SettleIteration(Ok(()))),
            Event::HeartbeatDue => Step::to(self).emit(Command::Beat),
            Event::AbortSeen => WindingDown::begin(WindingDown::Aborted),
            Event::LeaseLost => WindingDown::begin(WindingDown::Fenced),
            Event::Returned(result) => Finalizing::begin(result.into())
                .preceded_by([Command::StopHeartbeat, Command::UnsubscribeStatus]),
            _ => Step::to(self),
        }
    }

    /// Answers a function that asks.
    pub(super) fn feed<E>(mut self) -> Step<I, E> {
        let Some(input) = self.queue.pop_front() else {
            return Step::to(self).emit(Command::EndInput(EndOfInput::Closed));
        };
        self.turn_running = true;
        Step::to(self).emit(Command::StartTurn {
            input,
            row: TurnRow::Pending,
        })
    }
}

/// Background work was cancelled; the function has yet to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WindingDown {
    /// The row is aborted; it gets a finish reason when the function is done.
    Aborted,
    /// The row is another worker's, and nothing more is written to it.
    Fenced,
}

impl WindingDown {
    fn begin<I, E>(self) -> Step<I, E> {
        Step::to(self)
            .emit(Command::StopHeartbeat)
            .emit(Command::UnsubscribeStatus)
            .emit(Command::CancelWork)
    }

    pub(super) fn handle<I, E>(self, event: Event<I, E>) -> Step<I, E> {
        match (self, event) {
            (_, Event::NextInput) => Step::to(self).emit(Command::EndInput(EndOfInput::Cancelled)),
            (_, Event::TurnEnded(_)) => Step::to(self).emit(Command::SettleTurn(Ok(()))),
            (_, Event::IterationEnded) => Step::to(self).emit(Command::SettleIteration(Ok(()))),
            (_, Event::LeaseLost) => Step::to(Self::Fenced),
            (Self::Aborted, Event::Returned(result)) => Finalizing::begin(Ending::Aborted(result.err())),
            (Self::Fenced, Event::Returned(_)) => Step::to(Phase::Released).emit(Command::Release),
            _ => Step::to(self),
        }
    }
}

/// The final write of a detached run is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Finalizing;

impl Finalizing {
    pub(super) fn begin<I, E>(ending: Ending<E>) -> Step<I, E> {
        Step::to(Self).emit(Command::FinalizeRow(ending))
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
