//! A snapshot's reference to an unfinished turn.

use everturn_ai::JsonObject;
use serde::{Deserialize, Serialize};

/// A turn that was under way when a snapshot was taken: its journal, and how much of the journal the snapshot holds.
///
/// A turn that continues from the snapshot continues the same journal, so it repeats nothing that came after the
/// snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenTurn {
    /// The turn's part of the journal's key.
    pub(crate) journal: String,
    /// The number of journal records whose effects are part of the snapshot.
    pub(crate) records: u64,
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
            extra: JsonObject::new(),
        }
    }
}
