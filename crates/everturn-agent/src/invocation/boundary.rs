//! Where the turn under way began or, between turns, where the next one begins.

/// The state between two turns that a worker must begin with which takes the rest of a run over, as it is seen from the
/// newest row of the invocation.
///
/// Rows may be written in the middle of a turn. They do not move the boundary: the turn's input runs from where the turn
/// began, and what has happened since is in the turn's journal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Boundary<S> {
    /// The newest row holds it; without any row, it is the beginning of the session.
    InRow,
    /// The newest row holds something else.
    Beside(S),
}

impl<S> Boundary<S> {
    /// A row was written between two turns.
    pub(crate) fn row_written(&mut self) {
        *self = Self::InRow;
    }

    /// A row was written in the middle of a turn; `before` is what the row before it held.
    pub(crate) fn row_written_inside(&mut self, before: impl FnOnce() -> S) {
        if matches!(self, Self::InRow) {
            *self = Self::Beside(before());
        }
    }

    /// A turn is over, stands or failed, and has no row: the next one begins with what it left.
    pub(crate) fn turn_left(&mut self, state: S) {
        *self = Self::Beside(state);
    }

    /// The state, where the newest row does not hold it.
    pub(crate) fn beside(&self) -> Option<&S> {
        match self {
            Self::InRow => None,
            Self::Beside(state) => Some(state),
        }
    }
}
