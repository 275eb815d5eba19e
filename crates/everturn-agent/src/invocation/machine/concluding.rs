//! The phase in which the function has returned normally and the end of the invocation is being saved.

use super::detaching::Detaching;
use super::draining::Draining;
use super::state::{Meanwhile, Step};
use super::stopping::Stopping;
use super::{Cause, Command, Event, StoreSupport};

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
