//! A detach was accepted; its pending row is not yet written.
//!
//! Nothing starts before the row is durable: an accepted input is then never lost with the process, and if the row
//! cannot be written, nothing ran that the client was not told about.

use std::collections::VecDeque;

use super::background::{Background, Finalizing, TurnAtDetach};
use super::saving::{Saving, TurnMeanwhile, settle_all};
use super::state::{Meanwhile, Step};
use super::stopping::Stopping;
use super::{Cause, Command, Event, PendingId, Resolution, TurnOutcome};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Detaching<I, E> {
    write: Write<I, E>,
    function: Meanwhile<E>,
    queue: VecDeque<I>,
    client_gone: bool,
}

/// The write that is in flight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Write<I, E> {
    /// A row inside the turn on this input. What the function does meanwhile is noted there.
    Iteration(I, Saving<E>),
    /// The row of the invocation's end, which came before the detach.
    End,
    /// The row of the turn that ended before the detach; the pending row must become its child, not its sibling.
    Turn,
    /// The pending row, while a turn that the function was given earlier may still run.
    Pending(TurnAtDetach),
}

impl<I: Clone, E> Detaching<I, E> {
    /// Lets the turn-end write that is in flight land first.
    pub(super) fn await_commit(function: Meanwhile<E>, queue: VecDeque<I>) -> Step<I, E> {
        Step::to(Self::new(Write::Turn, function, queue))
    }

    /// Lets the row inside a turn that is in flight land first.
    pub(super) fn await_iteration(input: I, saving: Saving<E>, queue: VecDeque<I>) -> Step<I, E> {
        Step::to(Self::new(
            Write::Iteration(input, saving),
            Meanwhile::Running,
            queue,
        ))
    }

    /// Lets the row of the invocation's end that is in flight land first.
    pub(super) fn await_end() -> Step<I, E> {
        Step::to(Self::new(
            Write::End,
            Meanwhile::Returned(Ok(())),
            VecDeque::new(),
        ))
    }

    /// Writes the pending row while the function goes on with the turn on `running`, if any.
    pub(super) fn write(function: Meanwhile<E>, running: Option<I>, queue: VecDeque<I>) -> Step<I, E> {
        let write = Write::Pending(match running {
            Some(_) => TurnAtDetach::Running,
            None => TurnAtDetach::None,
        });
        Self::new(write, function, queue).write_pending(running)
    }

    fn new(write: Write<I, E>, function: Meanwhile<E>, queue: VecDeque<I>) -> Self {
        Self {
            write,
            function,
            queue,
            client_gone: false,
        }
    }

    pub(super) fn handle(mut self, event: Event<I, E>) -> Step<I, E> {
        if let Write::Iteration(input, saving) = self.write {
            return Self::handle_while_saving(input, saving, self.queue, self.client_gone, event);
        }
        match (&self.write, event) {
            (_, Event::IterationEnded) => {
                return Step::to(self).emit(Command::SettleIteration(Ok(())));
            }
            // What the row would have held is in the final write.
            (Write::End, Event::EndCommitted | Event::CommitFailed(_)) => {
                self.write = Write::Pending(TurnAtDetach::None);
                return self.write_pending(None);
            }
            // The turn that is on its way answers this request too.
            (Write::Pending(TurnAtDetach::Running), Event::NextInput) => {}
            (_, Event::NextInput) => self.function = Meanwhile::Asking,
            (_, Event::Returned(result)) => self.function = Meanwhile::Returned(result),
            (_, Event::ClientGone(_)) => self.client_gone = true,
            (Write::Turn, Event::TurnCommitted) => return self.settle(Ok(())),
            (Write::Turn, Event::CommitFailed(error)) => return self.settle(Err(error)),
            (Write::Pending(TurnAtDetach::Running), Event::TurnEnded(_)) => {
                self.write = Write::Pending(TurnAtDetach::Ended);
                return Step::to(self).emit(Command::SettleTurn(Ok(())));
            }
            (Write::Pending(TurnAtDetach::Running), Event::TurnRefused(input)) => {
                self.write = Write::Pending(TurnAtDetach::None);
                self.queue.push_front(input);
            }
            (&Write::Pending(turn), Event::PendingWritten) => return self.go_on(turn),
            (Write::Pending(_), Event::PendingFailed(error)) => return self.give_up(error),
            _ => {}
        }
        Step::to(self)
    }

    fn handle_while_saving(
        input: I,
        saving: Saving<E>,
        queue: VecDeque<I>,
        client_gone: bool,
        event: Event<I, E>,
    ) -> Step<I, E> {
        let row = match event {
            Event::IterationCommitted => Ok(()),
            Event::CommitFailed(error) => Err(error),
            event => {
                let client_gone = client_gone || matches!(event, Event::ClientGone(_));
                let write = Write::Iteration(input, saving.note(event));
                return Step::to(Self {
                    client_gone,
                    ..Self::new(write, Meanwhile::Running, queue)
                });
            }
        };
        let Saving { waiting, turn } = saving;
        let after = |write, function| Self {
            client_gone,
            ..Self::new(write, function, queue)
        };
        let none = Write::Pending(TurnAtDetach::None);
        let next = match turn {
            TurnMeanwhile::Running => {
                after(Write::Pending(TurnAtDetach::Running), Meanwhile::Running).write_pending(Some(input))
            }
            TurnMeanwhile::Abandoned(result) => after(none, Meanwhile::Returned(result)).write_pending(None),
            // It ended before the pending row was begun, so it has a row of its own.
            TurnMeanwhile::Ended(TurnOutcome::Succeeded, meanwhile) => {
                Step::to(after(Write::Turn, meanwhile)).emit(Command::CommitTurn)
            }
            TurnMeanwhile::Ended(TurnOutcome::Failed, meanwhile) => after(none, meanwhile)
                .write_pending(None)
                .preceded_by([Command::SettleTurn(Ok(()))]),
        };
        next.preceded_by(settle_all(row, waiting))
    }

    fn settle(mut self, commit: Result<(), E>) -> Step<I, E> {
        self.write = Write::Pending(TurnAtDetach::None);
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
