//! Prepared saves, which are complete before the database is locked.
//!
//! Other processes wait while one holds the write lock. So everything that takes time happens before:
//! reading, the caller's mutation, serialisation, compression, hashing. Under the lock the rows are written,
//! after a check that the data they were computed from has not changed. If it has, the save is
//! [stale](crate::fault::Fault::Stale) and is prepared again.

use std::collections::HashMap;

use everturn_agent::SessionId;
use everturn_agent::Snapshot;
use everturn_agent::store::Scope;
use everturn_ai::{History, JsonObject, LineageId};
use everturn_sql::Document;
use rusqlite::types::Value;

use crate::body::Packed;
use crate::checksum::Checksum;
use crate::position::Position;
use crate::row::Stored;

/// A body as it is stored, without its long strings, and those strings.
pub(crate) struct Encoded {
    pub(crate) body: Packed,
    pub(crate) pieces: Vec<Piece>,
    /// The checksum of the whole text.
    pub(crate) text: Checksum,
}

impl Encoded {
    /// Returns the checksum of the text under a key.
    pub(crate) fn checksum(&self, key: i64) -> i64 {
        Checksum::under(key, &self.text)
    }

    fn bytes(&self) -> usize {
        let pieces = self.pieces.iter().filter_map(|piece| piece.body.as_ref());
        self.body.len() + pieces.map(Packed::len).sum::<usize>()
    }
}

/// A long string of a body.
pub(crate) struct Piece {
    /// Where the string belongs in the rest of the body.
    pub(crate) offset: usize,
    pub(crate) hash: [u8; 32],
    /// `None` if the string was stored when it was looked up.
    pub(crate) body: Option<Packed>,
}

/// A history: the place where it begins to be new, and its messages from there on.
pub(crate) struct PreparedHistory {
    pub(crate) history: History,
    pub(crate) start: Option<Start>,
    pub(crate) messages: Vec<Encoded>,
}

/// A stored position with the beginning of a history.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub(crate) at: Position,
    /// The lineage of this process whose remembered place this is; `None` if the position was found by
    /// comparing.
    pub(crate) remembered: Option<LineageId>,
}

/// A document of a state.
pub(crate) enum PreparedDocument {
    /// The document was stored when it was looked up.
    Known { key: i64, document: Document },
    New {
        document: Document,
        /// The document on which the body is a patch.
        base: Option<Base>,
        body: Encoded,
        /// The checksum of the document's text, which is not that of a patch.
        text: Checksum,
    },
}

/// The document on which another is a patch, and the length of the chain of patches below it.
#[derive(Clone, Copy)]
pub(crate) struct Base {
    pub(crate) key: i64,
    pub(crate) depth: i64,
}

/// The parts of a state.
pub(crate) struct PreparedState {
    pub(crate) messages: Option<PreparedHistory>,
    pub(crate) custom: Option<PreparedDocument>,
    pub(crate) artifacts: Option<PreparedDocument>,
    pub(crate) prompt_input: Option<PreparedDocument>,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) extra: JsonObject,
}

/// A save.
pub(crate) struct PreparedSave {
    pub(crate) scope: Scope,
    pub(crate) row: Snapshot,
    /// The row that was stored when the save was prepared.
    pub(crate) before: Option<Stored>,
    /// The columns of the row, without the references to its state.
    pub(crate) columns: Vec<Value>,
    pub(crate) state: Option<PreparedState>,
}

impl PreparedSave {
    /// Returns about how many bytes the save holds in addition to the caller's state.
    pub(crate) fn bytes(&self) -> usize {
        let Some(state) = &self.state else { return 0 };
        let messages = state.messages.iter().flat_map(|history| &history.messages);
        let documents = [&state.custom, &state.artifacts, &state.prompt_input]
            .into_iter()
            .flatten();
        let documents = documents.map(|document| match document {
            PreparedDocument::Known { .. } => 0,
            PreparedDocument::New { body, .. } => body.bytes(),
        });
        messages.map(Encoded::bytes).chain(documents).sum()
    }
}

/// Documents that must be written in full because the documents on which they are patches are deleted.
///
/// Only deleting shows which these are. So the first attempt notes them, is undone, and is repeated when they
/// are ready.
#[derive(Default)]
pub(crate) struct Rewrites {
    pub(crate) ready: HashMap<i64, Encoded>,
    pub(crate) wanted: Vec<i64>,
}
