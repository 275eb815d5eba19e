//! The phase in which the work was cancelled while the client still awaits its outcome, and the function has
//! yet to return.

use super::ending::resolve;
use super::ending::{Saving, TurnMeanwhile, settle_all};
use super::{Cancellation, Cause, Command, EndOfInput, Event, Meanwhile, Resolution, Step, TurnOutcome};

/// Lasts only while the function runs or a write is in flight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Stopping<E> {
    cause: Cause<E>,
    client_gone: bool,
    keeps_failures: bool,
    write: Write,
    returned: Option<Result<(), E>>,
}

/// The write that is in flight. It is not cancelled but awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Write {
    None,
    /// The snapshot of the last turn, or of its failure.
    Turn,
    /// A snapshot inside the turn, while so many other rounds wait that get none, and the turn may have
    /// ended.
    Round {
        waiting: usize,
        ended: Option<TurnOutcome>,
    },
    /// The snapshot of the invocation's end.
    End,
}

impl<E: Clone> Stopping<E> {
    pub(super) fn because(cause: Cause<E>) -> Self {
        let client_gone = matches!(cause, Cause::ClientGone(_));
        Self {
            cause,
            client_gone,
            keeps_failures: false,
            write: Write::None,
            returned: None,
        }
    }

    everturn_core::setters! {
        /// Tells whether a turn that failed is kept as a snapshot.
        pub(super) fn keeping_failures(mut self, keeps_failures: bool) { self.keeps_failures = keeps_failures }

        /// Notes that the last turn is being made durable.
        pub(super) fn with_commit_in_flight(mut self) { self.write = Write::Turn }

        /// Notes that the invocation's end is being saved.
        pub(super) fn with_end_in_flight(mut self) { self.write = Write::End }

        /// Notes whether the client left before the cause arose.
        pub(super) fn with_client_gone(mut self, client_gone: bool) { self.client_gone = client_gone }
    }

    /// Cancels the work while a snapshot inside its turn is being written.
    pub(super) fn begin_while_saving<I>(mut self, saving: Saving<E>) -> Step<I, E> {
        let Saving { waiting, turn } = saving;
        let (ended, meanwhile) = match turn {
            TurnMeanwhile::Running => (None, Meanwhile::Running),
            TurnMeanwhile::Ended(outcome, meanwhile) => (Some(outcome), meanwhile),
            TurnMeanwhile::Abandoned(result) => (None, Meanwhile::Returned(result)),
        };
        self.write = Write::Round { waiting, ended };
        self.begin(meanwhile)
    }

    /// Cancels the rest of the work.
    pub(super) fn begin<I>(mut self, function: Meanwhile<E>) -> Step<I, E> {
        match function {
            Meanwhile::Running => {
                let cancel = self.cancel();
                Step::to(self).emit(cancel)
            }
            Meanwhile::Asking => {
                let cancel = self.cancel();
                Step::to(self)
                    .emit(cancel)
                    // The turn loop waits for an answer and would never return without one.
                    .emit(Command::EndInput(EndOfInput::Cancelled))
            }
            Meanwhile::Returned(result) => {
                if let Err(error) = result {
                    // The function failed before the work was cancelled, so the cancellation is not the
                    // cause.
                    self.cause = Cause::Function(error);
                }
                self.finish(Ok(()))
            }
        }
    }

    fn cancel<I>(&self) -> Command<I, E> {
        Command::CancelWork(Cancellation::Stopped(self.cause.clone()))
    }

    pub(super) fn handle<I>(mut self, event: Event<I, E>) -> Step<I, E> {
        match event {
            Event::NextInput => Step::to(self).emit(Command::EndInput(EndOfInput::Cancelled)),
            Event::RoundEnded => self.pass_round(),
            Event::TurnEnded(outcome) => self.end_turn(outcome),
            // The input is discarded with the invocation.
            Event::TurnRefused(_) => Step::to(self).emit(Command::ReleaseLock),
            Event::TurnCommitted(_)
            | Event::TurnKept(_)
            | Event::RoundCommitted(_)
            | Event::EndCommitted(_) => self.settle(Ok(())),
            Event::CommitFailed(error) => self.settle(Err(error)),
            Event::Returned(result) => self.finish(result),
            Event::ClientGone(_) => {
                self.client_gone = true;
                Step::to(self)
            }
            _ => Step::to(self),
        }
    }

    /// Settles a round that waits: cancelled work writes no snapshots inside its turn.
    fn pass_round<I>(mut self) -> Step<I, E> {
        if let Write::Round { waiting, .. } = &mut self.write {
            *waiting += 1;
            return Step::to(self);
        }
        Step::to(self).emit(Command::SettleRound(Ok(())))
    }

    fn end_turn<I>(mut self, outcome: TurnOutcome) -> Step<I, E> {
        if let Write::Round { ended, .. } = &mut self.write {
            *ended = Some(outcome);
            return Step::to(self);
        }
        // A complete turn is kept although its client left.
        match self.write_of(outcome) {
            Some(write) => Step::to(self.with_commit_in_flight()).emit(write),
            None => Step::to(self)
                .emit(Command::SettleTurn(Ok(())))
                .emit(Command::ReleaseLock),
        }
    }

    /// The write that follows the end of a turn, if one does.
    fn write_of<I>(&self, outcome: TurnOutcome) -> Option<Command<I, E>> {
        match outcome {
            _ if !self.writes_snapshots() => None,
            TurnOutcome::Succeeded => Some(Command::CommitTurn),
            TurnOutcome::Failed => self.keeps_failures.then_some(Command::KeepTurn),
        }
    }

    /// Returns whether turns still get snapshots. A detach ends them, even if it fails.
    fn writes_snapshots(&self) -> bool {
        !matches!(self.cause, Cause::PendingSnapshot(_))
    }

    fn settle<I>(mut self, snapshot: Result<(), E>) -> Step<I, E> {
        match std::mem::replace(&mut self.write, Write::None) {
            Write::None => Step::to(self),
            Write::End => self.resolve_when_done(),
            Write::Turn => self
                .resolve_when_done()
                .preceded_by([Command::SettleTurn(snapshot), Command::ReleaseLock]),
            Write::Round { waiting, ended } => {
                let write = ended.and_then(|outcome| self.write_of(outcome));
                let next = match (write, ended) {
                    (Some(write), _) => Step::to(self.with_commit_in_flight()).emit(write),
                    (None, Some(_)) => self
                        .resolve_when_done()
                        .preceded_by([Command::SettleTurn(Ok(())), Command::ReleaseLock]),
                    (None, None) => self.resolve_when_done(),
                };
                next.preceded_by(settle_all(snapshot, waiting))
            }
        }
    }

    fn finish<I>(mut self, result: Result<(), E>) -> Step<I, E> {
        self.returned = Some(result);
        self.resolve_when_done()
    }

    fn resolve_when_done<I>(mut self) -> Step<I, E> {
        if self.write != Write::None {
            return Step::to(self);
        }
        match self.returned.take() {
            None => Step::to(self),
            Some(result) => resolve(self.resolution(result)),
        }
    }

    fn resolution(self, result: Result<(), E>) -> Resolution<E> {
        match (self.cause, result) {
            // Its own error is more specific than the client's departure.
            (Cause::ClientGone(_), Err(error)) => Resolution::Rejected(Cause::Function(error)),
            (cause @ (Cause::ClientGone(_) | Cause::LockRefused(_)), _) => Resolution::Rejected(cause),
            (cause, _) if self.client_gone => Resolution::Rejected(cause),
            (cause, _) => Resolution::Failed(cause),
        }
    }
}
