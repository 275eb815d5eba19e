//! The session state from which a worker continues a run that it has taken over.

use super::{Commit, Event};

/// Tracks the state at which the current turn began or, between turns, the next one begins.
///
/// Snapshots may be written in the middle of a turn. They do not move the takeover point: the turn's input
/// runs again from where the turn began, and what has happened since is in the turn's journal.
///
/// - A turn ended, in any way: the newest snapshot stays. The takeover point is the state that the turn left,
///   which for a failed turn is the state that it had committed.
/// - A turn, its failure or the end of the invocation was committed with a snapshot: that snapshot is the
///   newest, and the takeover point is in it.
/// - The same was committed without a snapshot: both stay.
/// - A round was committed with a snapshot: that snapshot is the newest. A takeover point in the snapshot
///   before it becomes the state in that snapshot; any other stays.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TakeoverPoint<S> {
    newest: Option<S>,
    point: Point<S>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Point<S> {
    /// The newest snapshot holds the state; without any snapshot, it is the beginning of the session.
    InNewest,
    /// The beginning of the session, which no snapshot holds although there is one.
    Beginning,
    /// A state that the newest snapshot does not hold.
    Beside(S),
}

impl<S> TakeoverPoint<S> {
    /// Begins after the snapshot with the `newest` state, if there is one. `unsaved` is the state to begin
    /// with if it differs from that.
    pub(crate) fn new(newest: Option<S>, unsaved: Option<S>) -> Self {
        Self {
            newest,
            point: unsaved.map_or(Point::InNewest, Point::Beside),
        }
    }

    /// Updates the point after an event. `state` returns the state in the snapshot that the event reports, or
    /// else the session's live state.
    pub(crate) fn note<I, E>(&mut self, event: &Event<I, E>, state: impl FnOnce() -> S) {
        match event {
            Event::TurnEnded(_) => self.point = Point::Beside(state()),
            Event::TurnCommitted(Commit::Snapshot)
            | Event::TurnKept(Commit::Snapshot)
            | Event::EndCommitted(Commit::Snapshot) => {
                self.newest = Some(state());
                self.point = Point::InNewest;
            }
            Event::RoundCommitted(Commit::Snapshot) => {
                let before = self.newest.replace(state());
                if matches!(self.point, Point::InNewest) {
                    self.point = before.map_or(Point::Beginning, Point::Beside);
                }
            }
            _ => {}
        }
    }

    /// Returns the state in the newest snapshot, if there is a snapshot.
    #[cfg(test)]
    pub(crate) fn newest(&self) -> Option<&S> {
        self.newest.as_ref()
    }
}

impl<S: Clone> TakeoverPoint<S> {
    /// Returns the state that a pending snapshot must hold, if the newest snapshot does not hold it.
    pub(crate) fn unsaved(&self, beginning: impl FnOnce() -> S) -> Option<S> {
        match &self.point {
            Point::InNewest => None,
            Point::Beginning => Some(beginning()),
            Point::Beside(state) => Some(state.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TurnOutcome;
    use super::*;

    type Happening = Event<(), ()>;

    const ENDED: Happening = Event::TurnEnded(TurnOutcome::Succeeded);

    /// Returns the state that a pending snapshot must hold after these events, each given with its state.
    fn unsaved<const N: usize>(events: [(Happening, &'static str); N]) -> Option<&'static str> {
        let mut point = TakeoverPoint::new(None, None);
        for (event, state) in events {
            point.note(&event, || state);
        }
        point.unsaved(|| "beginning")
    }

    #[test]
    fn a_snapshot_between_turns_holds_the_takeover_point() {
        let committed = Event::TurnCommitted(Commit::Snapshot);
        let ended = Event::EndCommitted(Commit::Snapshot);

        assert_eq!(unsaved([]), None);
        assert_eq!(unsaved([(ENDED, "one"), (committed, "one")]), None);
        assert_eq!(unsaved([(ENDED, "one"), (ended, "one")]), None);
    }

    #[test]
    fn a_turn_without_a_snapshot_leaves_a_state_that_no_snapshot_holds() {
        let committed = Event::TurnCommitted(Commit::Nothing);
        let failed = Event::CommitFailed(());

        assert_eq!(unsaved([(ENDED, "one")]), Some("one"));
        assert_eq!(unsaved([(ENDED, "one"), (committed, "later")]), Some("one"));
        assert_eq!(unsaved([(ENDED, "one"), (failed, "later")]), Some("one"));
    }

    #[test]
    fn a_kept_failure_holds_the_takeover_point() {
        let failed = || Event::TurnEnded(TurnOutcome::Failed);
        let kept = Event::TurnKept;

        assert_eq!(
            unsaved([(failed(), "half"), (kept(Commit::Snapshot), "half")]),
            None
        );
        assert_eq!(
            unsaved([(failed(), "before"), (kept(Commit::Nothing), "before")]),
            Some("before")
        );
    }

    #[test]
    fn a_snapshot_inside_a_turn_does_not_move_the_takeover_point() {
        let round = || Event::RoundCommitted(Commit::Snapshot);
        let committed = Event::TurnCommitted(Commit::Snapshot);

        assert_eq!(unsaved([(round(), "half")]), Some("beginning"));
        assert_eq!(
            unsaved([
                (ENDED, "one"),
                (committed, "one"),
                (round(), "half"),
                (round(), "more")
            ]),
            Some("one")
        );
        assert_eq!(unsaved([(Event::RoundCommitted(Commit::Nothing), "half")]), None);
    }
}
