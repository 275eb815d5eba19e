//! A detach was accepted; its pending row is not yet written.
//!
//! Nothing starts before the row is durable: an accepted input is then never lost with the process, and if the row
//! cannot be written, nothing ran that the client was not told about.

use std::collections::VecDeque;

use super::background::{Background, Finalizing, TurnAtDetach};
use super::state::{Meanwhile, Step};
use super::stopping::Stopping;
use super::{Cause, Command, Event, PendingId, Resolution};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Detaching<I, E> {
    write: Write,
    function: Meanwhile<E>,
    queue: VecDeque<I>,
    client_gone: bool,
}

/// The write that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Write {
    /// The row of the turn that ended before the detach; the pending row must become its child, not its sibling.
    TurnRow,
    /// The pending row, while a turn that the function was given earlier may still run.
    PendingRow(TurnAtDetach),
}

impl<I: Clone, E> Detaching<I, E> {
    /// Lets the turn-end write that is in flight land first.
    pub(super) fn await_commit(function: Meanwhile<E>, queue: VecDeque<I>) -> Step<I, E> {
        Step::to(Self::new(Write::TurnRow, function, queue))
    }

    /// Writes the pending row while the function goes on with the turn on `running`, if any.
    pub(super) fn write(function: Meanwhile<E>, running: Option<I>, queue: VecDeque<I>) -> Step<I, E> {
        let write = Write::PendingRow(match running {
            Some(_) => TurnAtDetach::Running,
            None => TurnAtDetach::None,
        });
        Self::new(write, function, queue).write_pending(running)
    }

    fn new(write: Write, function: Meanwhile<E>, queue: VecDeque<I>) -> Self {
        Self {
            write,
            function,
            queue,
            client_gone: false,
        }
    }

    pub(super) fn handle(mut self, event: Event<I, E>) -> Step<I, E> {
        match (self.write, event) {
            // The turn that is on its way answers this request too.
            (Write::PendingRow(TurnAtDetach::Running), Event::NextInput) => {}
            (_, Event::NextInput) => self.function = Meanwhile::Asking,
            (_, Event::Returned(result)) => self.function = Meanwhile::Returned(result),
            (_, Event::ClientGone(_)) => self.client_gone = true,
            (Write::TurnRow, Event::TurnCommitted) => return self.settle(Ok(())),
            (Write::TurnRow, Event::CommitFailed(error)) => return self.settle(Err(error)),
            (Write::PendingRow(TurnAtDetach::Running), Event::TurnEnded(_)) => {
                self.write = Write::PendingRow(TurnAtDetach::Ended);
                return Step::to(self).emit(Command::SettleTurn(Ok(())));
            }
            (Write::PendingRow(TurnAtDetach::Running), Event::TurnRefused(input)) => {
                self.write = Write::PendingRow(TurnAtDetach::None);
                self.queue.push_front(input);
            }
            (Write::PendingRow(turn), Event::PendingWritten) => return self.go_on(turn),
            (Write::PendingRow(_), Event::PendingFailed(error)) => return self.give_up(error),
            _ => {}
        }
        Step::to(self)
    }

    fn settle(mut self, commit: Result<(), E>) -> Step<I, E> {
        self.write = Write::PendingRow(TurnAtDetach::None);
        self.write_pending(None)
            .preceded_by([Command::SettleTurn(commit)])
    }

    fn write_pending(mut self, running: Option<I>) -> Step<I, E> {
        if let Meanwhile::Returned(_) = self.function {
            self.queue.clear();
        }
        let id = if running.is_some() {
            PendingId::OfRunningTurn
        } else {
            PendingId::Fresh
        };
        let inputs = running.into_iter().chain(self.queue.iter().cloned()).collect();
        Step::to(self).emit(Command::WritePending { id, inputs })
    }

    fn go_on(self, turn: TurnAtDetach) -> Step<I, E> {
        let background = Background::new(self.queue, turn);
        let next = match self.function {
            Meanwhile::Running => Step::to(background),
            Meanwhile::Asking => background.ask(),
            Meanwhile::Returned(result) => {
                return Finalizing::begin(result.into())
                    .preceded_by([Command::Resolve(Resolution::Detached)]);
            }
        };
        next.preceded_by([
            Command::StartHeartbeat,
            Command::SubscribeStatus,
            Command::Resolve(Resolution::Detached),
        ])
    }

    fn give_up(self, error: E) -> Step<I, E> {
        Stopping::because(Cause::PendingRow(error))
            .with_client_gone(self.client_gone)
            .begin(self.function)
    }
}
