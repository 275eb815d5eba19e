//! How a row refers to a turn that is not over.

use serde::{Deserialize, Serialize};

use crate::store::JournalKey;
use crate::{SessionId, Snapshot};

/// Under which key a row from the middle of a turn names that turn.
const OPEN_TURN: &str = "openTurn";

/// A turn that was under way when a row was written: where it is written down, and how much of that the row holds.
///
/// Whoever goes on from the row with the same turn goes on with the same journal, and so repeats nothing that came after
/// the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenTurn {
    journal: String,
    /// How many of its records happened before the row: what their tools said and did is part of it.
    pub(crate) records: u64,
}

impl OpenTurn {
    pub(super) fn new(journal: &JournalKey, records: u64) -> Self {
        Self {
            journal: journal.turn().to_owned(),
            records,
        }
    }

    /// Where the turn is written down.
    pub(crate) fn journal(&self, session: &SessionId) -> JournalKey {
        JournalKey::new(session.clone(), self.journal.as_str())
    }

    /// The turn that a row is in the middle of, if it says so.
    pub(crate) fn of(row: &Snapshot) -> Option<Self> {
        Self::deserialize(row.extra.get(OPEN_TURN)?).ok()
    }

    pub(crate) fn put(&self, row: &mut Snapshot) {
        let turn = serde_json::to_value(self).expect("a name and a number are plain data");
        row.extra.insert(OPEN_TURN.to_owned(), turn);
    }

    /// Takes the turn's name out of a row: it is for workers.
    pub(crate) fn clear(row: &mut Snapshot) {
        row.extra.shift_remove(OPEN_TURN);
    }
}
