//! Preparing saves, before the database is locked.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_agent::store::{Detail, Mutation, Scope, admit};
use everturn_agent::{SessionId, SessionState, Snapshot, SnapshotId};
use everturn_ai::{History, JsonObject, LineageId};
use everturn_sql::{Document, Encoding};
use rusqlite::types::Value;

use crate::body::Packed;
use crate::checksum::Checksum;
use crate::fault::Outcome;
use crate::position::Position;
use crate::read::Reading;
use crate::row::{Stored, StoredState, check_id, columns};

/// A reading transaction in which saves are prepared.
pub(crate) struct Preparing<'a> {
    pub(crate) reading: Reading<'a>,
    pub(crate) encoding: Encoding,
}

impl Preparing<'_> {
    /// Reads a row, applies `mutation` and encodes the result. Returns `None` if the mutation writes nothing.
    ///
    /// Most saves create a row. So the first attempt does not look for it if the mutation creates one: should
    /// it exist, the save turns out to be stale when it is written.
    pub(crate) fn save(
        &mut self,
        scope: &Scope,
        id: &SnapshotId,
        mutation: &Mutation,
        is_first: bool,
    ) -> Outcome<Option<PreparedSave>> {
        check_id("scope", scope.as_str())?;
        check_id("snapshot id", id.as_str())?;
        if is_first
            && let Ok(Some(row)) = mutation.apply(None)
            && let Ok(row) = admit(id, None, row)
        {
            return self.encoded(scope, None, row).map(Some);
        }
        let before = self.reading.find(scope.as_str(), id.as_str())?;
        let existing = match &before {
            // Whole, because a mutation may look at the state.
            Some(stored) => Some(self.reading.snapshot(stored.clone(), Detail::Whole)?),
            None => None,
        };
        let Some(row) = mutation.apply(existing.as_ref())? else {
            return Ok(None);
        };
        let row = admit(id, existing.as_ref(), row)?;
        self.encoded(scope, before, row).map(Some)
    }

    /// Encodes a row that takes the place of `before`.
    fn encoded(&mut self, scope: &Scope, before: Option<Stored>, row: Snapshot) -> Outcome<PreparedSave> {
        let session_id = row.session_id.as_ref().expect("an admitted row has a session");
        check_id("session id", session_id.as_str())?;
        if let Some(parent) = &row.parent_id {
            check_id("parent id", parent.as_str())?;
        }
        let own = before.as_ref().and_then(|before| before.state.as_ref());
        let state = match &row.state {
            Some(state) => Some(self.state(scope, &row, state, own)?),
            None => None,
        };
        Ok(PreparedSave {
            scope: scope.clone(),
            columns: columns(&row)?,
            row,
            before,
            state,
        })
    }

    /// Encodes the new parts of a state, and finds the others.
    fn state(
        &mut self,
        scope: &Scope,
        row: &Snapshot,
        state: &SessionState,
        own: Option<&StoredState>,
    ) -> Outcome<PreparedState> {
        let start = self.remembered_start(&state.messages);
        let documents = state.custom.is_some() || state.prompt_input.is_some() || !state.artifacts.is_empty();
        let parent = match &row.parent_id {
            // Reading the parent is saved for most turns, which add messages to a known history and nothing
            // else.
            Some(parent) if documents || start.is_none() => self
                .reading
                .find(scope.as_str(), parent.as_str())?
                .and_then(|parent| parent.state),
            _ => None,
        };
        let related: Vec<Position> = own
            .into_iter()
            .chain(&parent)
            .filter_map(|state| state.messages)
            .collect();
        let messages = self.history(&state.messages, start, &related)?;
        let mut document = |document: Option<Document>, part: fn(&StoredState) -> Option<i64>| {
            document
                .map(|document| self.document(document, own.and_then(part), parent.as_ref().and_then(part)))
                .transpose()
        };
        let artifacts = Some(&state.artifacts).filter(|artifacts| !artifacts.is_empty());
        Ok(PreparedState {
            messages,
            custom: document(state.custom.clone().map(Document::Json), |state| state.custom)?,
            artifacts: document(
                artifacts.map(|artifacts| Document::Artifacts(Arc::clone(artifacts))),
                |state| state.artifacts,
            )?,
            prompt_input: document(state.prompt_input.clone().map(Document::Json), |state| {
                state.prompt_input
            })?,
            session_id: state.session_id.clone(),
            extra: state.extra.clone(),
        })
    }

    /// Encodes the documents that an attempt has asked for.
    pub(crate) fn rewrites(&mut self, rewrites: &mut Rewrites) -> Outcome<()> {
        for key in std::mem::take(&mut rewrites.wanted) {
            // A document that is gone by now is not asked for again.
            if self.reading.has_document(key)? {
                let text = self.reading.document_text(key)?;
                rewrites.ready.insert(key, self.encode(&text)?);
            }
        }
        Ok(())
    }
}

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
