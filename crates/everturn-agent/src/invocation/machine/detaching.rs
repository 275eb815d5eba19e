//! The phase in which a detach was accepted and its pending snapshot is not yet written.
//!
//! Nothing starts before the snapshot is durable: an accepted input is then never lost with the process, and
//! if the snapshot cannot be written, nothing ran without the client's knowledge.

use std::collections::VecDeque;

use super::background::{Background, Finalizing, TurnAtDetach};
use super::ending::{Saving, TurnMeanwhile, settle_all};
use super::stopping::Stopping;
use super::{Cause, Command, Event, Meanwhile, Resolution, Step, TurnOutcome};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Detaching<I, E> {
    awaits: Awaits<I, E>,
    function: Meanwhile<E>,
    queue: VecDeque<I>,
    client_gone: bool,
}

/// The event that the machine waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Awaits<I, E> {
    /// A snapshot inside the turn on this input; it also holds what the function does meanwhile.
    Round(I, Saving<E>),
    /// The snapshot of the invocation's end, which came before the detach.
    End,
    /// The snapshot of the turn that ended before the detach; the pending snapshot must become its child, not
    /// its sibling.
    Turn,
    /// The turn lock.
    Lock,
    /// The pending snapshot, while a turn that the function was given earlier may still run.
    Pending(TurnAtDetach),
}

impl<I: Clone, E: Clone> Detaching<I, E> {
    /// Detaches between two turns, or after the last.
    pub(super) fn begin(function: Meanwhile<E>, queue: VecDeque<I>) -> Step<I, E> {
        Self::new(Awaits::Lock, function, queue).take_lock()
    }

    /// Detaches while a turn waits for the turn lock. The run takes the lock in its place, and the turn is
    /// its first.
    pub(super) fn await_lock(input: I, mut queue: VecDeque<I>) -> Step<I, E> {
        queue.push_front(input);
        Step::to(Self::new(Awaits::Lock, Meanwhile::Asking, queue)).emit(Command::LetClientGo)
    }

    /// Detaches while a turn on `input` runs.
    pub(super) fn in_turn(input: I, queue: VecDeque<I>) -> Step<I, E> {
        let awaits = Awaits::Pending(TurnAtDetach::Running);
        Self::new(awaits, Meanwhile::Running, queue)
            .write_pending(Some(input))
            .preceded_by([Command::LetClientGo])
    }

    /// Waits for the turn-end write in flight first.
    pub(super) fn await_commit(function: Meanwhile<E>, queue: VecDeque<I>) -> Step<I, E> {
        Step::to(Self::new(Awaits::Turn, function, queue))
    }

    /// Waits for the snapshot inside a turn in flight first.
    pub(super) fn await_round(input: I, saving: Saving<E>, queue: VecDeque<I>) -> Step<I, E> {
        Step::to(Self::new(Awaits::Round(input, saving), Meanwhile::Running, queue))
    }

    /// Waits for the snapshot of the invocation's end in flight first.
    pub(super) fn await_end() -> Step<I, E> {
        Step::to(Self::new(
            Awaits::End,
            Meanwhile::Returned(Ok(())),
            VecDeque::new(),
        ))
    }

    fn new(awaits: Awaits<I, E>, function: Meanwhile<E>, queue: VecDeque<I>) -> Self {
        Self {
            awaits,
            function,
            queue,
            client_gone: false,
        }
    }

    pub(super) fn handle(mut self, event: Event<I, E>) -> Step<I, E> {
        if let Awaits::Round(input, saving) = self.awaits {
            return Self::handle_while_saving(input, saving, self.queue, self.client_gone, event);
        }
        match (&mut self.awaits, event) {
            // A background run has no snapshots inside its turns.
            (_, Event::RoundEnded) => {
                return Step::to(self).emit(Command::SettleRound(Ok(())));
            }
            // The final write of the run holds the state of that snapshot, so its failure loses nothing.
            (Awaits::End, Event::EndCommitted(_) | Event::CommitFailed(_)) => return self.take_lock(),
            (Awaits::Turn, Event::TurnCommitted(_) | Event::TurnKept(_)) => return self.settle(Ok(())),
            (Awaits::Turn, Event::CommitFailed(error)) => return self.settle(Err(error)),
            (Awaits::Lock, Event::LockGranted) => {
                self.awaits = Awaits::Pending(TurnAtDetach::None);
                return self.write_pending(None);
            }
            // The turn that is on its way answers this request too.
            (Awaits::Pending(TurnAtDetach::Running), Event::NextInput) => {}
            (_, Event::NextInput) => self.function = Meanwhile::Asking,
            (_, Event::Returned(result)) => self.function = Meanwhile::Returned(result),
            (_, Event::ClientGone(_)) => self.client_gone = true,
            // The turn gets no snapshot: the pending one lists its input, and progress is recorded before the
            // next turn.
            (Awaits::Pending(turn @ TurnAtDetach::Running), Event::TurnEnded(_)) => {
                *turn = TurnAtDetach::Ended;
                return Step::to(self).emit(Command::SettleTurn(Ok(())));
            }
            (Awaits::Pending(turn @ TurnAtDetach::Running), Event::TurnRefused(input)) => {
                *turn = TurnAtDetach::None;
                self.queue.push_front(input);
            }
            (&mut Awaits::Pending(turn), Event::PendingWritten) => return self.go_on(turn),
            (Awaits::Lock, Event::LockRefused(error)) | (Awaits::Pending(_), Event::PendingFailed(error)) => {
                return self.give_up(error);
            }
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
        let snapshot = match event {
            Event::RoundCommitted(_) => Ok(()),
            Event::CommitFailed(error) => Err(error),
            event => {
                let client_gone = client_gone || matches!(event, Event::ClientGone(_));
                let awaits = Awaits::Round(input, saving.note(event));
                return Step::to(Self {
                    client_gone,
                    ..Self::new(awaits, Meanwhile::Running, queue)
                });
            }
        };
        let Saving { waiting, turn } = saving;
        let after = |awaits, function| Self {
            client_gone,
            ..Self::new(awaits, function, queue)
        };
        let next = match turn {
            TurnMeanwhile::Running => after(Awaits::Pending(TurnAtDetach::Running), Meanwhile::Running)
                .write_pending(Some(input))
                .preceded_by([Command::LetClientGo]),
            TurnMeanwhile::Abandoned(result) => after(Awaits::Lock, Meanwhile::Returned(result)).take_lock(),
            // The turn ended before the pending snapshot was begun, so it has a separate snapshot.
            TurnMeanwhile::Ended(TurnOutcome::Succeeded, meanwhile) => {
                Step::to(after(Awaits::Turn, meanwhile)).emit(Command::CommitTurn)
            }
            TurnMeanwhile::Ended(TurnOutcome::Failed, meanwhile) => after(Awaits::Lock, meanwhile)
                .take_lock()
                .preceded_by([Command::SettleTurn(Ok(()))]),
        };
        next.preceded_by(settle_all(snapshot, waiting))
    }

    /// Ends the turn. Its lock is kept: no other turn may come between this turn and the run.
    fn settle(self, commit: Result<(), E>) -> Step<I, E> {
        self.take_lock().preceded_by([Command::SettleTurn(commit)])
    }

    fn take_lock(mut self) -> Step<I, E> {
        self.awaits = Awaits::Lock;
        Step::to(self).emit(Command::LetClientGo).emit(Command::TakeLock)
    }

    fn write_pending(mut self, running: Option<I>) -> Step<I, E> {
        if let Meanwhile::Returned(_) = self.function {
            // Nobody can run the inputs of a function that has returned.
            self.queue.clear();
        }
        let inputs = running.into_iter().chain(self.queue.iter().cloned()).collect();
        Step::to(self).emit(Command::WritePending { inputs })
    }

    fn go_on(self, turn: TurnAtDetach) -> Step<I, E> {
        let background = Background::new(self.queue, turn);
        let next = match self.function {
            Meanwhile::Running => Step::to(background),
            Meanwhile::Asking => background.ask(),
            Meanwhile::Returned(result) => {
                // The client is answered first: its detach was accepted, whatever became of the work.
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
        Stopping::because(Cause::PendingSnapshot(error))
            .with_client_gone(self.client_gone)
            .begin(self.function)
    }
}
