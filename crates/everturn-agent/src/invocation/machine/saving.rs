//! A snapshot in the middle of a turn that is being written while its generation waits.

use super::{Command, Event, Meanwhile, TurnOutcome};

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
