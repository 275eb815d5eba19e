//! A cache of stored histories and documents, so that continuing a conversation reads nothing and writes only
//! new messages.
//!
//! A cached fact stays true: the messages before a position in a lineage never change, and keys are never
//! reused. So entries are never invalidated, only evicted. The exception is a fact from a transaction that is
//! rolled back. A [`Cache`] therefore keeps the facts of its transaction separate until they are published.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_agent::SessionState;
use everturn_ai::{History, LineageId};
use everturn_sql::{Document, Documents, Lru};
use parking_lot::{Mutex, MutexGuard};

use crate::row::StoredState;

/// The bytes that the tables of the cache take for each entry, about.
const ENTRY: usize = 256;

/// How many lineages of this process are remembered. Evicting one costs a comparison of messages, nothing
/// else.
const MAX_PLACES: usize = 16 * 1024;

/// Where a lineage of this process is stored: its first `saved` messages equal those of the stored lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) lineage: i64,
    pub(crate) saved: usize,
}

/// The facts that all connections of a store share.
pub(crate) struct Memory {
    histories: Lru<i64, History>,
    places: Lru<LineageId, Place>,
    documents: Documents<i64, ()>,
    /// The tables of which an index is known to be complete.
    counted: Vec<&'static str>,
}

impl Memory {
    /// Remembers up to that many bytes, a quarter of them in documents.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            histories: Lru::new(bytes - bytes / 4),
            places: Lru::new(MAX_PLACES),
            documents: Documents::new(bytes / 4),
            counted: Vec::new(),
        }
    }
}

/// The facts that one transaction, or one part of it, has learned.
#[derive(Default)]
struct Learned {
    histories: HashMap<i64, History>,
    places: HashMap<LineageId, Place>,
    documents: HashMap<i64, (Document, usize)>,
    addresses: HashMap<usize, i64>,
}

/// The shared facts as one transaction sees them, with those it has learned itself.
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
        // A panic can at worst have lost an entry.
        self.shared.lock()
    }

    /// Returns whether the index of a table is known to be complete.
    pub(crate) fn is_counted(&self, table: &str) -> bool {
        self.shared().counted.contains(&table)
    }

    pub(crate) fn learn_counted(&self, table: &'static str) {
        self.shared().counted.push(table);
    }

    fn learned<T>(&self, fact: impl Fn(&Learned) -> Option<T>) -> Option<T> {
        fact(&self.current).or_else(|| fact(&self.kept))
    }

    /// Returns the longest remembered history of a stored lineage.
    pub(crate) fn history(&self, lineage: i64) -> Option<History> {
        self.learned(|learned| learned.histories.get(&lineage).cloned())
            .or_else(|| self.shared().histories.get(&lineage).cloned())
    }

    /// Returns where a lineage of this process is stored.
    pub(crate) fn place(&self, lineage: LineageId) -> Option<Place> {
        self.learned(|learned| learned.places.get(&lineage).copied())
            .or_else(|| self.shared().places.get(&lineage).copied())
    }

    pub(crate) fn document(&self, key: i64) -> Option<Document> {
        let learned = |learned: &Learned| learned.documents.get(&key).map(|(document, _)| document.clone());
        self.learned(learned)
            .or_else(|| self.shared().documents.get(&key).map(|(document, ())| document))
    }

    /// Returns the key of the stored document that shares this value.
    pub(crate) fn document_like(&self, document: &Document) -> Option<i64> {
        let address = document.address();
        self.learned(|learned| learned.addresses.get(&address).copied())
            .or_else(|| self.shared().documents.key_of(document))
    }

    /// Returns a state, if all its parts are remembered.
    pub(crate) fn state(&self, stored: StoredState) -> Option<SessionState> {
        let json = |key: Option<i64>| match key.map(|key| self.document(key)) {
            None => Some(None),
            Some(Some(Document::Json(value))) => Some(Some(value)),
            Some(_) => None,
        };
        let messages = match stored.messages {
            Some(at) => self
                .history(at.lineage)
                .filter(|history| history.len() >= at.len)?
                .truncate_to(at.len),
            None => History::new(),
        };
        let artifacts = match stored.artifacts.map(|key| self.document(key)) {
            None => Arc::default(),
            Some(Some(Document::Artifacts(artifacts))) => artifacts,
            Some(_) => return None,
        };
        Some(SessionState {
            session_id: stored.session_id,
            messages,
            custom: json(stored.custom)?,
            artifacts,
            prompt_input: json(stored.prompt_input)?,
            extra: stored.extra,
        })
    }

    /// Remembers that a history is stored in a lineage.
    pub(crate) fn learn_history(&mut self, lineage: i64, history: &History) {
        let saved = history.len();
        self.learn_place(history.lineage().id(), Place { lineage, saved });
        self.current.histories.insert(lineage, history.clone());
    }

    pub(crate) fn learn_place(&mut self, lineage: LineageId, place: Place) {
        self.current.places.insert(lineage, place);
    }

    pub(crate) fn learn_document(&mut self, key: i64, document: &Document) {
        let bytes = document.heap_size();
        self.current.addresses.insert(document.address(), key);
        self.current.documents.insert(key, (document.clone(), bytes));
    }

    /// Forgets where a lineage of this process is stored, because it is not there any more.
    pub(crate) fn forget_place(&self, lineage: LineageId) {
        self.shared().places.remove(&lineage);
    }

    /// Forgets that a document is stored, because it was deleted.
    pub(crate) fn forget_document(&self, document: &Document) {
        self.shared().documents.forget(document);
    }

    /// Makes the facts learned since the last call part of the transaction.
    pub(crate) fn keep(&mut self) {
        let current = std::mem::take(&mut self.current);
        self.kept.histories.extend(current.histories);
        self.kept.places.extend(current.places);
        self.kept.documents.extend(current.documents);
        self.kept.addresses.extend(current.addresses);
    }

    /// Drops the facts learned since the last call of [`Cache::keep`], because that part was rolled back.
    pub(crate) fn forget(&mut self) {
        self.current = Learned::default();
    }

    /// Shares the learned facts with all connections. For a transaction that has committed, or that only
    /// read.
    pub(crate) fn publish(mut self) {
        self.keep();
        let kept = std::mem::take(&mut self.kept);
        let mut guard = self.shared();
        let memory = &mut *guard;
        let mut gone = Vec::new();
        for (lineage, history) in kept.histories {
            // Another connection may have read a longer history meanwhile.
            if memory
                .histories
                .get(&lineage)
                .is_none_or(|known| known.len() <= history.len())
            {
                // All of it, also what another entry shares: that one may be evicted first.
                let weight = history.heap_size() + ENTRY;
                gone.extend(memory.histories.insert(lineage, history, weight));
            }
        }
        for (lineage, place) in kept.places {
            let further = |known: &Place| known.lineage == place.lineage && known.saved > place.saved;
            if !memory.places.get(&lineage).is_some_and(further) {
                let _ = memory.places.insert(lineage, place, 1);
            }
        }
        let mut evicted = Vec::new();
        for (key, (document, bytes)) in kept.documents {
            evicted.extend(memory.documents.insert(key, document, (), bytes + ENTRY));
        }
        // Histories and documents are large: they are dropped after the lock is released.
        drop(guard);
        drop((gone, evicted));
    }
}
