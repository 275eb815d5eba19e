//! A cache of histories, documents and sessions, so that continuing a conversation reads nothing and writes
//! only new messages.
//!
//! Facts about content stay true: messages with a checksum never change, and numbers of documents are random
//! and never reused. Positions in a lineage are reused if the database is restored to an earlier point, so a
//! history is found by its position and its last checksum. Facts about a session ([`Known`]) are true at one
//! version of the session, which is random too. A commit compares that version, so outdated facts never cause
//! a write.

use std::sync::Arc;

use everturn_ai::{History, LineageId, Message};
use everturn_sql::{Document, Documents, Lru};
use parking_lot::{Mutex, MutexGuard};

use crate::known::Known;
use crate::position::{DocumentKey, LineageKey, Position, SessionKey, Tail};

/// The number of cached lineages of this process, and of cached sessions. Evicting one costs a read.
const MAX_PLACES: usize = 16 * 1024;

/// Where a lineage of this process is stored: its first `saved` messages equal those of the stored lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) lineage: LineageKey,
    pub(crate) saved: usize,
    /// The checksum of the last of them.
    pub(crate) tail: Tail,
}

/// A stored history, and the checksums of its messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoredHistory {
    pub(crate) history: History,
    tails: Arc<Vec<Tail>>,
}

impl StoredHistory {
    pub(crate) fn len(&self) -> usize {
        self.history.len()
    }

    /// Returns the checksum of the last of the first `len` messages.
    pub(crate) fn tail(&self, len: usize) -> Option<Tail> {
        let last = len.checked_sub(1).filter(|last| *last < self.len())?;
        self.tails.get(last).copied()
    }

    pub(crate) fn truncate_to(&self, len: usize) -> Self {
        Self {
            history: self.history.truncate_to(len),
            tails: Arc::clone(&self.tails),
        }
    }

    pub(crate) fn push(&mut self, message: Message, tail: Tail) {
        let tails = Arc::make_mut(&mut self.tails);
        tails.truncate(self.history.len());
        tails.push(tail);
        self.history.push(message);
    }
}

/// A history that a commit has stored.
pub(crate) struct Grown {
    pub(crate) history: History,
    /// Where its beginning was stored before.
    pub(crate) start: Option<(Position, Tail)>,
    /// The checksums of the messages after that.
    pub(crate) tails: Vec<Tail>,
    /// The bytes of these messages.
    pub(crate) bytes: usize,
}

/// The facts that all calls of a store share.
pub(crate) struct Memory {
    histories: Lru<LineageKey, StoredHistory>,
    places: Lru<LineageId, Place>,
    /// Documents, with the number of patches between each and a full text.
    documents: Documents<DocumentKey, i32>,
    sessions: Lru<SessionKey, Arc<Known>>,
    /// The sessions of their latest snapshots, by what stands for the snapshot's id.
    tips: Lru<i64, SessionKey>,
}

/// A handle to the facts.
pub(crate) struct Cache(Mutex<Memory>);

impl Cache {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Mutex::new(Memory {
            histories: Lru::new(bytes),
            places: Lru::new(MAX_PLACES),
            documents: Documents::new(bytes / 4),
            sessions: Lru::new(MAX_PLACES),
            tips: Lru::new(MAX_PLACES),
        }))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // A panic can at worst have lost an entry.
        self.0.lock()
    }

    /// Returns the longest remembered history of a stored lineage.
    pub(crate) fn history(&self, lineage: LineageKey) -> Option<StoredHistory> {
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
        self.memory().documents.get(&key)
    }

    /// Returns the key of the stored document that shares this value.
    pub(crate) fn document_like(&self, document: &Document) -> Option<DocumentKey> {
        self.memory().documents.key_of(document)
    }

    pub(crate) fn session(&self, key: SessionKey) -> Option<Arc<Known>> {
        self.memory().sessions.get(&key).cloned()
    }

    /// Returns the session whose latest snapshot this tag stood for when it was last seen.
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

    /// Remembers a history that was read from a lineage, and that it is `grown` bytes longer than it was
    /// known to be.
    pub(crate) fn learn_history(&self, lineage: LineageKey, stored_history: &StoredHistory, grown: usize) {
        let mut memory = self.memory();
        let weight = memory.histories.weight_of(&lineage) + grown;
        let gone = memory.learn_history(lineage, stored_history.clone(), weight);
        drop(memory);
        // Dropping a long history takes a while, which others need not wait for.
        drop(gone);
    }

    /// Remembers a history that a commit has stored in a lineage.
    pub(crate) fn learn_grown(&self, lineage: LineageKey, grown: Grown) {
        let Grown {
            history,
            start,
            tails: new,
            bytes,
        } = grown;
        let mut memory = self.memory();
        let weight = memory.histories.weight_of(&lineage) + bytes;
        let before = match start {
            None => Some(Arc::default()),
            Some((at, tail)) => {
                let known = if at.lineage == lineage {
                    memory.histories.remove(&lineage)
                } else {
                    memory.histories.get(&at.lineage).cloned()
                };
                let same = known.filter(|known| known.tail(at.len) == Some(tail));
                same.map(|known| known.tails)
            }
        };
        let stored = start.map_or(0, |(at, _)| at.len);
        let gone = if let Some(mut tails) = before {
            let all = Arc::make_mut(&mut tails);
            all.truncate(stored);
            all.extend(new);
            memory.learn_history(lineage, StoredHistory { history, tails }, weight)
        } else {
            // The checksums before it are not in memory: only where it is stored is remembered.
            if let Some(tail) = new.last().copied().or(start.map(|(_, tail)| tail)) {
                let saved = history.len();
                memory.learn_place(history.lineage().id(), Place { lineage, saved, tail });
            }
            Vec::new()
        };
        drop(memory);
        drop(gone);
    }

    pub(crate) fn learn_document(&self, key: DocumentKey, document: &Document, depth: i32, bytes: usize) {
        let evicted = self
            .memory()
            .documents
            .insert(key, document.clone(), depth, bytes);
        drop(evicted);
    }
}

impl Memory {
    /// Remembers a history and where it is stored. Returns what left the memory.
    fn learn_history(
        &mut self,
        lineage: LineageKey,
        stored_history: StoredHistory,
        weight: usize,
    ) -> Vec<StoredHistory> {
        let mut next = Some(&stored_history.history);
        let mut is_first = true;
        // The histories that this one forked from begin alike.
        while let Some(history) = next
            && (is_first || self.places.get(&history.lineage().id()).is_none())
        {
            let saved = history.len();
            if let Some(tail) = stored_history.tail(saved) {
                let id = history.lineage().id();
                self.learn_place(id, Place { lineage, saved, tail });
            }
            is_first = false;
            next = history.lineage().parent();
        }
        let known = self.histories.get(&lineage);
        let is_longer = known.is_some_and(|known| {
            known.len() > stored_history.len()
                && stored_history
                    .tail(stored_history.len())
                    .is_some_and(|tail| known.tail(stored_history.len()) == Some(tail))
        });
        if is_longer {
            return Vec::new();
        }
        self.histories.insert(lineage, stored_history, weight)
    }

    fn learn_place(&mut self, lineage: LineageId, place: Place) {
        let further = |known: &Place| known.lineage == place.lineage && known.saved > place.saved;
        if !self.places.get(&lineage).is_some_and(further) {
            let _ = self.places.insert(lineage, place, 1);
        }
    }
}
