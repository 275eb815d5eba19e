//! Stored documents, and a cache of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use everturn_agent::Artifact;
use everturn_ai::json_heap_size;
use serde_json::Value;

use crate::{Lru, Outcome, write};

/// A stored document: a custom state, a prompt input or a list of artifacts. Its clones share the value.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "stores match on both")]
pub enum Document {
    /// A custom state or a prompt input.
    Json(Arc<Value>),
    /// A list of artifacts.
    Artifacts(Arc<Vec<Artifact>>),
}

impl Document {
    /// Returns the document's text.
    ///
    /// # Errors
    /// [`Fault::Refused`](crate::Fault::Refused) for a document that is nested too deeply to be read.
    pub fn text(&self) -> Outcome<String> {
        match self {
            Self::Json(value) => write(value),
            Self::Artifacts(artifacts) => write(artifacts),
        }
    }

    /// Returns the approximate heap size of the document in bytes.
    pub fn heap_size(&self) -> usize {
        match self {
            Self::Json(value) => size_of::<Value>() + json_heap_size(value),
            Self::Artifacts(artifacts) => artifacts.iter().map(Artifact::heap_size).sum(),
        }
    }

    /// Returns the address of the shared value, which identifies it as long as a clone exists.
    pub fn address(&self) -> usize {
        match self {
            Self::Json(value) => Arc::as_ptr(value).addr(),
            Self::Artifacts(artifacts) => Arc::as_ptr(artifacts).addr(),
        }
    }
}

/// A cache of stored documents by key and by value. `T` is what a store caches beside a document.
#[derive(Debug)]
pub struct Documents<K, T> {
    entries: Lru<K, (Document, T)>,
    /// The keys of the cached documents, by the addresses of their values.
    keys: HashMap<usize, K>,
}

impl<K: Copy + Eq + Hash, T: Clone> Documents<K, T> {
    /// Creates an empty cache that keeps documents of up to `limit` in total weight.
    pub fn new(limit: usize) -> Self {
        Self {
            entries: Lru::new(limit),
            keys: HashMap::new(),
        }
    }

    /// Returns a document.
    pub fn get(&mut self, key: &K) -> Option<(Document, T)> {
        self.entries.get(key).cloned()
    }

    /// Returns the key of the cached document that shares this value.
    pub fn key_of(&self, document: &Document) -> Option<K> {
        self.keys.get(&document.address()).copied()
    }

    /// Adds a document, and returns the evicted ones.
    #[must_use = "dropping evicted documents may take long: drop them after releasing the lock"]
    pub fn insert(&mut self, key: K, document: Document, extra: T, weight: usize) -> Vec<(Document, T)> {
        self.keys.insert(document.address(), key);
        let evicted = self.entries.insert(key, (document, extra), weight);
        for (document, _) in &evicted {
            let address = document.address();
            let cached = self.keys.get(&address).and_then(|key| self.entries.get(key));
            // A document that is still cached may have the same value.
            if cached.is_none_or(|(cached, _)| cached.address() != address) {
                self.keys.remove(&address);
            }
        }
        evicted
    }

    /// Removes the key of a document, because the stored document was deleted.
    pub fn forget(&mut self, document: &Document) {
        self.keys.remove(&document.address());
    }
}
