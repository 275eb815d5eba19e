//! What is remembered of the database, so that going on with a conversation reads nothing and writes only what is new.
//!
//! Everything remembered is true for good: a position in a lineage never changes its messages and keys are not used
//! twice, so nothing here is ever invalidated, only forgotten for want of room. The one exception is what a transaction
//! made that did not commit; therefore a [`Cache`] keeps what it learns to itself until it is published.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_agent::Artifact;
use everturn_ai::{History, LineageId};
use serde_json::Value;

use crate::recency::Recency;

/// How many lineages of this process are remembered. Forgetting one costs a comparison of messages, nothing else.
const MAX_PLACES: usize = 16 * 1024;

/// Where a lineage of this process is stored: its first `saved` messages are those of the stored lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) lineage: i64,
    pub(crate) saved: usize,
}

/// A stored document as its holders share it.
#[derive(Debug, Clone)]
pub(crate) enum Document {
    Json(Arc<Value>),
    Artifacts(Arc<Vec<Artifact>>),
}

impl Document {
    /// Identifies the shared value for as long as somebody holds it.
    pub(crate) fn address(&self) -> usize {
        match self {
            Self::Json(value) => Arc::as_ptr(value).addr(),
            Self::Artifacts(artifacts) => Arc::as_ptr(artifacts).addr(),
        }
    }
}

/// What all connections of a store remember together.
pub(crate) struct Memory {
    histories: Recency<i64, History>,
    places: Recency<LineageId, Place>,
    documents: Recency<i64, Document>,
    addresses: HashMap<usize, i64>,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            histories: Recency::new(bytes),
            places: Recency::new(MAX_PLACES),
            documents: Recency::new(bytes / 4),
            addresses: HashMap::new(),
        }
    }
}

/// What one transaction, or one part of it, found out.
#[derive(Default)]
struct Learned {
    /// With the bytes by which the history grew.
    histories: HashMap<i64, (History, usize)>,
    places: HashMap<LineageId, Place>,
    documents: HashMap<i64, (Document, usize)>,
    addresses: HashMap<usize, i64>,
}

/// The memory as one transaction sees it.
pub(crate) struct Cache<'a> {
    shared: &'a Mutex<Memory>,
    kept: Learned,
    current: Learned,
}

impl<'a> Cache<'a> {
    pub(crate) fn new(shared: &'a Mutex<Memory>) -> Self {
        Self {
            shared,
            kept: Learned::default(),
            current: Learned::default(),
        }
    }

    fn shared(&self) -> MutexGuard<'a, Memory> {
        // A lost entry is the worst that a panic can have left behind.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learned(&self) -> [&Learned; 2] {
        [&self.current, &self.kept]
    }

    /// The longest history of a stored lineage that is remembered.
    pub(crate) fn history(&self, lineage: i64) -> Option<History> {
        let learned = self
            .learned()
            .into_iter()
            .find_map(|learned| learned.histories.get(&lineage));
        learned
            .map(|(history, _)| history.clone())
            .or_else(|| self.shared().histories.get(&lineage).cloned())
    }

    /// Where a lineage of this process is stored.
    pub(crate) fn place(&self, lineage: LineageId) -> Option<Place> {
        let learned = self
            .learned()
            .into_iter()
            .find_map(|learned| learned.places.get(&lineage));
        learned
            .copied()
            .or_else(|| self.shared().places.get(&lineage).copied())
    }

    pub(crate) fn document(&self, key: i64) -> Option<Document> {
        let learned = self
            .learned()
            .into_iter()
            .find_map(|learned| learned.documents.get(&key));
        learned
            .map(|(document, _)| document.clone())
            .or_else(|| self.shared().documents.get(&key).cloned())
    }

    /// The stored document that this very value was read from or written to.
    pub(crate) fn document_like(&self, document: &Document) -> Option<i64> {
        let address = document.address();
        let learned = self
            .learned()
            .into_iter()
            .find_map(|learned| learned.addresses.get(&address));
        learned
            .copied()
            .or_else(|| self.shared().addresses.get(&address).copied())
    }

    /// Remembers that a history is stored in a lineage, and that it is `grown` bytes longer than it was known to be.
    pub(crate) fn learn_history(&mut self, lineage: i64, history: &History, grown: usize) {
        self.learn_place(
            history.lineage().id(),
            Place {
                lineage,
                saved: history.len(),
            },
        );
        let entry = self
            .current
            .histories
            .entry(lineage)
            .or_insert_with(|| (history.clone(), 0));
        entry.0 = history.clone();
        entry.1 += grown;
    }

    pub(crate) fn learn_place(&mut self, lineage: LineageId, place: Place) {
        self.current.places.insert(lineage, place);
    }

    pub(crate) fn learn_document(&mut self, key: i64, document: &Document, bytes: usize) {
        self.current.addresses.insert(document.address(), key);
        self.current.documents.insert(key, (document.clone(), bytes));
    }

    /// Makes what was learned since the last call part of the transaction.
    pub(crate) fn keep(&mut self) {
        let current = std::mem::take(&mut self.current);
        for (lineage, (history, grown)) in current.histories {
            let entry = self
                .kept
                .histories
                .entry(lineage)
                .or_insert_with(|| (history.clone(), 0));
            entry.0 = history;
            entry.1 += grown;
        }
        self.kept.places.extend(current.places);
        self.kept.documents.extend(current.documents);
        self.kept.addresses.extend(current.addresses);
    }

    /// Forgets what was learned since the last call of [`Cache::keep`]: it was rolled back.
    pub(crate) fn forget(&mut self) {
        self.current = Learned::default();
    }

    /// Tells all others; for a transaction that has committed, or that only read.
    pub(crate) fn publish(mut self) {
        self.keep();
        let kept = std::mem::take(&mut self.kept);
        let mut guard = self.shared();
        let memory = &mut *guard;
        let mut gone = Vec::new();
        for (lineage, (history, grown)) in kept.histories {
            if memory
                .histories
                .get(&lineage)
                .is_none_or(|known| known.len() <= history.len())
            {
                let weight = memory.histories.weight_of(&lineage) + grown;
                gone.extend(memory.histories.insert(lineage, history, weight));
            }
        }
        for (lineage, place) in kept.places {
            let further = |known: &Place| known.lineage == place.lineage && known.saved > place.saved;
            if !memory.places.get(&lineage).is_some_and(further) {
                let _ = memory.places.insert(lineage, place, 1);
            }
        }
        let mut forgotten = Vec::new();
        for (key, (document, bytes)) in kept.documents {
            memory.addresses.insert(document.address(), key);
            forgotten.extend(memory.documents.insert(key, document, bytes));
        }
        for document in &forgotten {
            let address = document.address();
            let held = memory
                .addresses
                .get(&address)
                .and_then(|key| memory.documents.get(key));
            if held.is_none_or(|held| held.address() != address) {
                memory.addresses.remove(&address);
            }
        }
        drop(guard);
        drop((gone, forgotten));
    }
}
