//! A snapshot's reference to an unfinished turn.

use everturn_ai::JsonObject;
use everturn_macros::wire;
use serde::{Deserialize, Serialize};

/// A turn that was in progress when a snapshot was taken: its journal, and how much of the journal the
/// snapshot holds.
///
/// A turn that continues from the snapshot continues the same journal, so it repeats nothing that came after
/// the snapshot.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenTurn {
    /// The turn's part of the journal's key.
    pub(crate) journal: String,
    /// The number of journal records whose effects are part of the snapshot.
    pub(crate) records: u64,
    /// The turn's name; absent if it is that of the journal.
    pub(crate) turn: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    extra: JsonObject,
}

impl OpenTurn {
    /// Creates a reference to the turn with this journal, of which so many records are part of the snapshot.
    pub(crate) fn new(journal: &str, records: u64) -> Self {
        Self {
            journal: journal.to_owned(),
            records,
            turn: None,
            extra: JsonObject::new(),
        }
    }

    /// Sets the turn's name.
    pub(crate) fn named(self, turn: &str) -> Self {
        Self {
            turn: Some(turn.to_owned()).filter(|turn| *turn != self.journal),
            ..self
        }
    }
}
