//! A commit in the making: everything that it will write, computed before anything is sent.

use std::sync::Arc;

use everturn_ai::LineageId;
use everturn_sql::Document;

use crate::cache::Grown;
use crate::inner::Inner;
use crate::known::Known;
use crate::position::{LineageKey, Position, SessionKey, Tail, new_version};
use crate::read::Reading;

/// How many documents a version of a session can number.
const DOCUMENTS_PER_VERSION: i64 = 4;

/// Everything that one commit writes in addition to the row.
#[derive(Default)]
pub(crate) struct Change {
    /// A new lineage and where it forks from.
    pub(crate) lineage: Option<(i64, Option<Position>)>,
    /// The position in another session's lineage that must still exist.
    pub(crate) foreign: Option<Position>,
    /// Where the beginning of the history must be stored, and the checksum of its last message.
    pub(crate) start: Option<(Position, Tail)>,
    pub(crate) messages: NewMessages,
    pub(crate) documents: Vec<NewDocument>,
    pub(crate) document_pieces: Vec<Cut>,
    pub(crate) blobs: Vec<([u8; 32], Vec<u8>)>,
}

/// Messages at the end of a lineage.
#[derive(Default)]
pub(crate) struct NewMessages {
    pub(crate) lineage: i64,
    pub(crate) numbers: Vec<i32>,
    pub(crate) cuts: Vec<i32>,
    pub(crate) bodies: Vec<Vec<u8>>,
    pub(crate) tails: Vec<Tail>,
    pub(crate) pieces: Vec<Cut>,
}

pub(crate) struct NewDocument {
    pub(crate) number: i64,
    pub(crate) base: Option<i64>,
    pub(crate) depth: i32,
    pub(crate) cuts: i32,
    pub(crate) body: Vec<u8>,
    pub(crate) checksum: i64,
}

/// A fact that holds once the commit has succeeded.
pub(crate) enum Remember {
    History {
        lineage: LineageKey,
        grown: Grown,
    },
    Document {
        number: i64,
        document: Document,
        depth: i32,
        bytes: usize,
    },
}

/// A commit in the making.
pub(crate) struct Plan<'a> {
    pub(crate) store: &'a Inner,
    pub(crate) reading: Reading<'a>,
    pub(crate) session: SessionKey,
    /// Whether the commit begins the session.
    pub(crate) is_new: bool,
    /// The version that the commit sets.
    pub(crate) next_version: i64,
    /// The random half of the checksums of new messages.
    pub(crate) random: i32,
    /// The session as it is, and as it will be once the commit has succeeded.
    pub(crate) known: Known,
    pub(crate) change: Change,
    pub(crate) remember: Vec<Remember>,
    /// The lineage of this process by which the stored beginning of the history was found.
    pub(crate) found_by: Option<LineageId>,
}

/// Where a string was cut out of the body with a number.
pub(crate) struct Cut {
    pub(crate) number: i64,
    pub(crate) place: i32,
    pub(crate) hash: [u8; 32],
}

impl<'a> Plan<'a> {
    pub(crate) fn new(reading: Reading<'a>, session: SessionKey, known: Option<Arc<Known>>) -> Self {
        let is_new = known.is_none();
        let first = || Known {
            version: new_version(),
            ..Known::default()
        };
        Self {
            store: reading.store,
            reading,
            session,
            is_new,
            next_version: new_version(),
            random: fastrand::i32(..),
            known: known.map_or_else(first, |known| Known::clone(&known)),
            change: Change::default(),
            remember: Vec::new(),
            found_by: None,
        }
    }

    pub(crate) fn next_document(&self) -> i64 {
        let taken = i64::try_from(self.change.documents.len()).expect("a state has three documents");
        self.next_version * DOCUMENTS_PER_VERSION + taken
    }
}
