//! The phases after the function has returned: its end is saved ([`Concluding`]), then the last chunks are
//! sent to the client ([`Draining`]).

use std::collections::VecDeque;

use super::detaching::Detaching;
use super::stopping::Stopping;
use super::{Cause, Command, Event, Meanwhile, Phase, Resolution, Step, StoreSupport};

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
