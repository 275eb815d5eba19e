//! What a store remembers of its database, so that continuing a conversation reads nothing and writes only what is new.
//!
//! There are two kinds of facts. Those about content stay true: the messages before a position in a lineage never change,
//! and numbers are never used again. Those about a session ([`Known`]) are true at one version of the session; a commit
//! compares that version, so acting on facts that have become false writes nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_agent::Artifact;
use everturn_ai::{History, LineageId};
use serde_json::Value;

use crate::known::Known;
use crate::position::{DocumentKey, LineageKey, SessionKey};
use crate::recency::Recency;

/// How many lineages of this process, and sessions, are remembered. Forgetting one costs a read, nothing else.
const MAX_PLACES: usize = 16 * 1024;

/// Where a lineage of this process is stored: its first `saved` messages equal those of the stored lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) lineage: LineageKey,
    pub(crate) saved: usize,
}

/// A stored document, shared by its holders.
#[derive(Debug, Clone)]
pub(crate) enum Document {
    Json(Arc<Value>),
    Artifacts(Arc<Vec<Artifact>>),
}

impl Document {
    /// Returns the address of the shared value, which identifies it while it is held.
    pub(crate) fn address(&self) -> usize {
        match self {
            Self::Json(value) => Arc::as_ptr(value).addr(),
            Self::Artifacts(artifacts) => Arc::as_ptr(artifacts).addr(),
        }
    }
}

/// The facts that all calls of a store share.
pub(crate) struct Memory {
    histories: Recency<LineageKey, History>,
    places: Recency<LineageId, Place>,
    /// Documents, with the number of patches between each and a full text.
    documents: Recency<DocumentKey, (Document, i32)>,
    addresses: HashMap<usize, DocumentKey>,
    sessions: Recency<SessionKey, Arc<Known>>,
    /// The sessions of their latest snapshots, by what stands for the snapshot's id.
    tips: Recency<i64, SessionKey>,
}

/// A handle to the facts.
pub(crate) struct Cache(Mutex<Memory>);

impl Cache {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Mutex::new(Memory {
            histories: Recency::new(bytes),
            places: Recency::new(MAX_PLACES),
            documents: Recency::new(bytes / 4),
            addresses: HashMap::new(),
            sessions: Recency::new(MAX_PLACES),
            tips: Recency::new(MAX_PLACES),
        }))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // A panic can at worst have lost an entry.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the longest remembered history of a stored lineage.
    pub(crate) fn history(&self, lineage: LineageKey) -> Option<History> {
        self.memory().histories.get(&lineage).cloned()
    }

    /// Returns where a lineage of this process is stored.
    pub(crate) fn place(&self, lineage: LineageId) -> Option<Place> {
        self.memory().places.get(&lineage).copied()
    }

    /// Forgets where a lineage of this process was stored, because it is no longer.
    pub(crate) fn forget_place(&self, lineage: LineageId) {
        self.memory().places.remove(&lineage);
    }

    pub(crate) fn document(&self, key: DocumentKey) -> Option<(Document, i32)> {
        self.memory().documents.get(&key).cloned()
    }

    /// Returns the key of the stored document that shares this value.
    pub(crate) fn document_like(&self, document: &Document) -> Option<DocumentKey> {
        self.memory().addresses.get(&document.address()).copied()
    }

    pub(crate) fn session(&self, key: SessionKey) -> Option<Arc<Known>> {
        self.memory().sessions.get(&key).cloned()
    }

    /// Returns the session whose latest snapshot this tag stood for when it was last heard of.
    pub(crate) fn session_at(&self, tag: i64) -> Option<SessionKey> {
        self.memory().tips.get(&tag).copied()
    }

    /// Remembers which session has the latest snapshot that this tag stands for.
    pub(crate) fn learn_tip(&self, tag: i64, session: SessionKey) {
        let _ = self.memory().tips.insert(tag, session, 1);
    }

    pub(crate) fn learn_session(&self, key: SessionKey, known: Arc<Known>) {
        let gone = self.memory().sessions.insert(key, known, 1);
        drop(gone);
    }

    pub(crate) fn forget_session(&self, key: SessionKey) {
        let gone = self.memory().sessions.remove(&key);
        drop(gone);
    }

    /// Remembers that a history is stored in a lineage, and that it is `grown` bytes longer than it was known to be.
    pub(crate) fn learn_history(&self, lineage: LineageKey, history: &History, grown: usize) {
        let mut memory = self.memory();
        let mut gone = Vec::new();
        if memory
            .histories
            .get(&lineage)
            .is_none_or(|known| known.len() <= history.len())
        {
            let weight = memory.histories.weight_of(&lineage) + grown;
            gone = memory.histories.insert(lineage, history.clone(), weight);
        }
        memory.learn_place(
            history.lineage().id(),
            Place {
                lineage,
                saved: history.len(),
            },
        );
        // The histories that this one forked from begin alike.
        let mut next = history.lineage().parent();
        while let Some(earlier) = next
            && memory.places.get(&earlier.lineage().id()).is_none()
        {
            memory.learn_place(
                earlier.lineage().id(),
                Place {
                    lineage,
                    saved: earlier.len(),
                },
            );
            next = earlier.lineage().parent();
        }
        drop(memory);
        // Dropping a long history takes a while, which others need not wait for.
        drop(gone);
    }

    pub(crate) fn learn_document(&self, key: DocumentKey, document: &Document, depth: i32, bytes: usize) {
        let mut memory = self.memory();
        memory.addresses.insert(document.address(), key);
        let forgotten = memory.documents.insert(key, (document.clone(), depth), bytes);
        for (document, _) in &forgotten {
            let address = document.address();
            let holder = memory.addresses.get(&address).copied();
            let held = holder.and_then(|key| memory.documents.get(&key));
            if held.is_none_or(|(held, _)| held.address() != address) {
                memory.addresses.remove(&address);
            }
        }
        drop(memory);
        drop(forgotten);
    }
}

impl Memory {
    fn learn_place(&mut self, lineage: LineageId, place: Place) {
        let further = |known: &Place| known.lineage == place.lineage && known.saved > place.saved;
        if !self.places.get(&lineage).is_some_and(further) {
            let _ = self.places.insert(lineage, place, 1);
        }
    }
}
