//! The phases after the function has returned: its end is saved ([`Concluding`]), then the last chunks are
//! sent to the client ([`Draining`]).

use std::collections::VecDeque;

use super::detaching::Detaching;
use super::stopping::Stopping;
use super::{Cause, Command, Event, Meanwhile, Phase, Resolution, Step, StoreSupport, TurnOutcome};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Concluding {
    store: StoreSupport,
}

impl Concluding {
    pub(super) fn begin<I, E>(store: StoreSupport) -> Step<I, E> {
        Step::to(Self { store }).emit(Command::CommitEnd)
    }

    pub(super) fn handle<I: Clone, E: Clone>(self, event: Event<I, E>) -> Step<I, E> {
        match event {
            Event::EndCommitted(_) => Draining::begin(self.store, Ok(())),
            // A client must never receive a state as durable that is not.
            Event::CommitFailed(error) => Draining::begin(self.store, Err(error)),
            Event::ClientGone(error) => Self::stop(Cause::ClientGone(error)),
            Event::TransformFailed(error) => Self::stop(Cause::Transform(error)),
            Event::Detach(_) => match self.store.admit_detach() {
                Ok(()) => Detaching::await_end().preceded_by([Command::SilenceClient]),
                Err(cause) => Self::stop(cause),
            },
            _ => Step::to(self),
        }
    }

    fn stop<I, E: Clone>(cause: Cause<E>) -> Step<I, E> {
        Stopping::because(cause)
            .with_end_in_flight()
            .begin(Meanwhile::Returned(Ok(())))
            .preceded_by([Command::SilenceClient])
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Draining<E> {
    store: StoreSupport,
    result: Result<(), E>,
}

impl<E: Clone> Draining<E> {
    pub(super) fn begin<I>(store: StoreSupport, result: Result<(), E>) -> Step<I, E> {
        Step::to(Self { store, result }).emit(Command::Drain)
    }

    pub(super) fn handle<I: Clone>(self, event: Event<I, E>) -> Step<I, E> {
        match event {
            Event::Drained => self.deliver(),
            Event::TransformFailed(error) => self.fail(Cause::Transform(error)),
            Event::ClientGone(error) => self.reject(Cause::ClientGone(error)),
            Event::Detach(_) => self.detach(),
            _ => Step::to(self),
        }
    }

    fn deliver<I>(self) -> Step<I, E> {
        resolve(match self.result {
            Ok(()) => Resolution::Completed,
            Err(error) => Resolution::Failed(Cause::Function(error)),
        })
    }

    /// Fails the invocation, with the function's own error if there is one, because it came first.
    fn fail<I>(self, cause: Cause<E>) -> Step<I, E> {
        let cause = self.result.err().map_or(cause, Cause::Function);
        resolve(Resolution::Failed(cause)).preceded_by([Command::SilenceClient])
    }

    fn reject<I>(self, cause: Cause<E>) -> Step<I, E> {
        let cause = self.result.err().map_or(cause, Cause::Function);
        resolve(Resolution::Rejected(cause)).preceded_by([Command::SilenceClient])
    }

    fn detach<I: Clone>(self) -> Step<I, E> {
        if let Err(cause) = self.store.admit_detach() {
            return self.fail(cause);
        }
        Detaching::begin(Meanwhile::Returned(self.result), VecDeque::new())
            .preceded_by([Command::SilenceClient])
    }
}

/// Answers the caller of an invocation whose function has returned, and ends it.
pub(super) fn resolve<I, E>(resolution: Resolution<E>) -> Step<I, E> {
    Step::to(Phase::Released)
        .emit(Command::Resolve(resolution))
        .emit(Command::Release)
}

/// The write in flight. There is one at a time, because each snapshot is the child of the one before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Saving<E> {
    /// The number of rounds that ended since and wait for their snapshots.
    pub(super) waiting: usize,
    pub(super) turn: TurnMeanwhile<E>,
}

/// The state of the turn while the snapshot is being written. Its generation may have been dropped, so the
/// turn need not wait.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum TurnMeanwhile<E> {
    Running,
    /// It ended, and waits to be settled.
    Ended(TurnOutcome, Meanwhile<E>),
    /// The function returned from the middle of it.
    Abandoned(Result<(), E>),
}

impl<E> Saving<E> {
    pub(super) fn begin() -> Self {
        Self {
            waiting: 0,
            turn: TurnMeanwhile::Running,
        }
    }

    /// Notes what the function does meanwhile.
    pub(super) fn note<I>(mut self, event: Event<I, E>) -> Self {
        match event {
            Event::RoundEnded => self.waiting += 1,
            Event::TurnEnded(outcome) => self.turn = TurnMeanwhile::Ended(outcome, Meanwhile::Running),
            Event::NextInput => {
                if let TurnMeanwhile::Ended(_, meanwhile) = &mut self.turn {
                    *meanwhile = Meanwhile::Asking;
                }
            }
            Event::Returned(result) => {
                self.turn = match self.turn {
                    TurnMeanwhile::Ended(outcome, _) => {
                        TurnMeanwhile::Ended(outcome, Meanwhile::Returned(result))
                    }
                    _ => TurnMeanwhile::Abandoned(result),
                };
            }
            _ => {}
        }
        self
    }
}

/// Settles the generation whose snapshot was written or failed, then those that waited behind it, without a
/// snapshot.
pub(super) fn settle_all<I, E>(
    snapshot: Result<(), E>,
    waiting: usize,
) -> impl Iterator<Item = Command<I, E>> {
    let without_snapshot = std::iter::repeat_with(|| Command::SettleRound(Ok(()))).take(waiting);
    std::iter::once(Command::SettleRound(snapshot)).chain(without_snapshot)
}
