//! A commit in the making: everything that it will write, computed before anything is sent.

use std::sync::Arc;

use everturn_ai::{History, LineageId};

use crate::cache::Document;
use crate::inner::Inner;
use crate::known::Known;
use crate::position::{LineageKey, Position, SessionKey};
use crate::read::Reading;

/// How many documents a version of a session can number.
const DOCUMENTS_PER_VERSION: i64 = 4;

/// Everything that one commit writes beside the row itself.
#[derive(Default)]
pub(crate) struct Change {
    /// A new lineage and where it forks from.
    pub(crate) lineage: Option<(i64, Option<Position>)>,
    /// The position in another session's lineage that must still exist.
    pub(crate) foreign: Option<Position>,
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
    pub(crate) pieces: Vec<Cut>,
}

pub(crate) struct NewDocument {
    pub(crate) number: i64,
    pub(crate) base: Option<i64>,
    pub(crate) depth: i32,
    pub(crate) cuts: i32,
    pub(crate) body: Vec<u8>,
}

/// A fact that holds once the commit has succeeded.
pub(crate) enum Remember {
    History {
        lineage: LineageKey,
        history: History,
        bytes: usize,
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
    pub(crate) session: SessionKey,
    /// Whether the commit begins the session.
    pub(crate) is_new: bool,
    /// The session as it is, and as it will be once the commit has succeeded.
    pub(crate) known: Known,
    pub(crate) change: Change,
    pub(crate) remember: Vec<Remember>,
    /// The lineage of this process through which another session's was found.
    pub(crate) foreign: Option<LineageId>,
}

/// Where a string was cut out of the body with a number.
pub(crate) struct Cut {
    pub(crate) number: i64,
    pub(crate) place: i32,
    pub(crate) hash: [u8; 32],
}

impl<'a> Plan<'a> {
    pub(crate) fn new(store: &'a Inner, session: SessionKey, known: Option<Arc<Known>>) -> Self {
        let is_new = known.is_none();
        // A quarter of all numbers, so that documents can be numbered by versions.
        let first = || Known {
            version: fastrand::i64(1..i64::MAX >> 3),
            ..Known::default()
        };
        Self {
            store,
            session,
            is_new,
            known: known.map_or_else(first, |known| Known::clone(&known)),
            change: Change::default(),
            remember: Vec::new(),
            foreign: None,
        }
    }

    pub(crate) fn reading(&self) -> Reading<'a> {
        self.store.reading()
    }

    /// The version that the commit sets.
    pub(crate) fn next_version(&self) -> i64 {
        self.known.version + 1
    }

    pub(crate) fn next_document(&self) -> i64 {
        let taken = i64::try_from(self.change.documents.len()).expect("a state has three documents");
        self.next_version() * DOCUMENTS_PER_VERSION + taken
    }
}
