//! Answered questions: each question can be answered once.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_agent::store::{IntoStore, JournalKey, JournalRecord, RECORD_TAKEN, Scope, SessionStore};
use everturn_core::{Error, Result};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::time::Instant;

use super::asking::ANSWERABLE_FOR;

/// The maximum number of answered questions that a process remembers, because clients determine how many they
/// answer.
const MAX_REMEMBERED: usize = 100_000;

/// The session under which a store keeps the ids of answered questions.
const SESSION: &str = "mcp-questions";

/// The questions that were answered, by their ids, until they expire. A clone shares them.
#[derive(Clone, Default)]
pub(super) struct Spent {
    here: Arc<Mutex<HashMap<String, Instant>>>,
    /// The store that other processes share.
    store: Option<Arc<dyn SessionStore>>,
}

impl Spent {
    /// Stores the ids in a store, too.
    pub(super) fn in_store(&mut self, store: impl IntoStore) {
        self.store = Some(store.into_store());
    }

    /// Claims the only answer to a question.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if it was claimed before; `RESOURCE_EXHAUSTED` if too many questions are
    /// remembered; the store's own errors.
    pub(super) async fn claim(&self, scope: &Scope, id: &str) -> Result<()> {
        self.claim_here(id)?;
        let claimed = self.claim_in_store(scope, id).await;
        if claimed.is_err() {
            self.here().remove(id);
        }
        claimed
    }

    /// Releases a claim whose answer had no effect.
    pub(super) async fn give_back(&self, scope: &Scope, id: &str) -> Result<()> {
        if let Some(journal) = self.store.as_deref().and_then(SessionStore::journal) {
            journal.clear(scope, &key(id)).await?;
        }
        self.here().remove(id);
        Ok(())
    }

    fn here(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.here.lock()
    }

    fn claim_here(&self, id: &str) -> Result<()> {
        let now = Instant::now();
        let mut here = self.here();
        if here.contains_key(id) {
            return Err(answered());
        }
        if here.len() >= MAX_REMEMBERED {
            here.retain(|_, until| *until > now);
        }
        if here.len() >= MAX_REMEMBERED {
            return Err(Error::resource_exhausted("too many questions were answered lately").with_public());
        }
        here.insert(id.to_owned(), now + ANSWERABLE_FOR);
        Ok(())
    }

    async fn claim_in_store(&self, scope: &Scope, id: &str) -> Result<()> {
        let Some(journal) = self.store.as_deref().and_then(SessionStore::journal) else {
            return Ok(());
        };
        let record = JournalRecord {
            sequence: 0,
            body: json!({ "answered": id }),
        };
        // A journal entry is written once among all processes. The store's agents remove old journals.
        match journal.append(scope, &key(id), record, None).await {
            Err(error) if error.is(RECORD_TAKEN) => Err(answered()),
            claimed => claimed,
        }
    }
}

fn key(id: &str) -> JournalKey {
    JournalKey::new(SESSION.into(), id)
}

fn answered() -> Error {
    Error::failed_precondition("'requestState' was answered before: a question can be answered once")
        .with_public()
}
