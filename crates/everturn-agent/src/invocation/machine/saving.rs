//! A snapshot is being written in the middle of a turn, for a generation that waits for it.

use super::state::Meanwhile;
use super::{Command, Event, TurnOutcome};

/// One such snapshot is in flight at a time, because each is the child of the one before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Saving<E> {
    /// How many rounds have ended since and wait for their snapshots.
    pub(super) waiting: usize,
    pub(super) turn: TurnMeanwhile<E>,
}

/// What became of the turn while the snapshot was being written. Its generation may have been dropped, so it need not wait.
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

    /// Takes note of what the function does meanwhile.
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

/// Lets the generation go on whose snapshot was written or failed, then those that waited behind it, without a snapshot.
pub(super) fn settle_all<I, E>(
    snapshot: Result<(), E>,
    waiting: usize,
) -> impl Iterator<Item = Command<I, E>> {
    let without_snapshot = std::iter::repeat_with(|| Command::SettleRound(Ok(()))).take(waiting);
    std::iter::once(Command::SettleRound(snapshot)).chain(without_snapshot)
}
