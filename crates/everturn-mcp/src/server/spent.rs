//! Answered questions: each question can be answered once.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_agent::store::{IntoStore, JournalKey, JournalRecord, RECORD_TAKEN, Scope, SessionStore};
use everturn_core::{Error, Result};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::asking::ANSWERABLE_FOR;

/// The maximum number of answered questions of a caller that a process remembers, because callers determine
/// how many they answer.
const MAX_REMEMBERED: usize = 10_000;

/// The session under which a store keeps the ids of answered questions.
const SESSION: &str = "mcp-questions";

/// The questions that were answered, by their ids, until they expire. A clone shares them.
#[derive(Clone)]
pub(super) enum Spent {
    Here(Arc<Mutex<HashMap<Caller, Answers>>>),
    /// In the journals of a store that other processes share.
    Store(Arc<dyn SessionStore>),
}

/// The expiry of each answered question.
type Answers = HashMap<String, Instant>;

/// The tenant and the name of a caller.
pub(super) type Caller = (Scope, Option<Arc<str>>);

impl Default for Spent {
    fn default() -> Self {
        Self::Here(Arc::default())
    }
}

impl Spent {
    /// Records the ids in a store.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the store keeps no journals.
    pub(super) fn in_store(store: impl IntoStore) -> Result<Self> {
        let store = store.into_store();
        if store.journal().is_none() {
            return Err(Error::invalid_argument(
                "the store keeps no journals, so answered questions cannot be recorded in it",
            ));
        }
        Ok(Self::Store(store))
    }

    /// Claims the only answer to a question.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if it was claimed before; `RESOURCE_EXHAUSTED` if too many questions of the
    /// caller are remembered; the store's own errors.
    pub(super) async fn claim(&self, caller: &Caller, id: &str) -> Result<()> {
        let store = match self {
            Self::Here(here) => return claim_here(&mut here.lock(), caller, id),
            Self::Store(store) => store,
        };
        let Some(journal) = store.journal() else {
            return Ok(());
        };
        let record = JournalRecord {
            sequence: 0,
            body: json!({ "answered": id }),
        };
        // A journal entry is written once among all processes. The store's agents remove old journals.
        match journal.append(&caller.0, &key(id), record, None).await {
            Err(error) if error.is(RECORD_TAKEN) => Err(answered()),
            claimed => claimed,
        }
    }

    /// Releases a claim whose answer had no effect.
    pub(super) async fn give_back(&self, caller: &Caller, id: &str) -> Result<()> {
        match self {
            Self::Here(here) => {
                here.lock().entry(caller.clone()).or_default().remove(id);
            }
            Self::Store(store) => {
                if let Some(journal) = store.journal() {
                    journal.clear(&caller.0, &key(id)).await?;
                }
            }
        }
        Ok(())
    }
}

fn claim_here(here: &mut HashMap<Caller, Answers>, caller: &Caller, id: &str) -> Result<()> {
    let now = Instant::now();
    if !here.contains_key(caller) {
        here.retain(|_, answers| answers.values().any(|until| *until > now));
    }
    let answers = here.entry(caller.clone()).or_default();
    if answers.contains_key(id) {
        return Err(answered());
    }
    if answers.len() >= MAX_REMEMBERED {
        answers.retain(|_, until| *until > now);
    }
    if answers.len() >= MAX_REMEMBERED {
        return Err(Error::resource_exhausted("you answered too many questions lately").with_public());
    }
    answers.insert(id.to_owned(), now + ANSWERABLE_FOR);
    Ok(())
}

fn key(id: &str) -> JournalKey {
    JournalKey::new(SESSION.into(), id)
}

fn answered() -> Error {
    Error::failed_precondition("'requestState' was answered before: a question can be answered once")
        .with_public()
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_with_too_many_answers_does_not_stop_others() {
        let spent = Spent::default();
        let caller = |name: &str| -> Caller { (Scope::default(), Some(name.into())) };
        let (alice, bob) = (caller("alice"), caller("bob"));
        for number in 0..MAX_REMEMBERED {
            spent.claim(&alice, &number.to_string()).await.unwrap();
        }

        let refused = spent.claim(&alice, "one more").await.unwrap_err();
        let other = spent.claim(&bob, "first").await;
        tokio::time::advance(ANSWERABLE_FOR).await;
        let later = spent.claim(&alice, "one more").await;

        assert_eq!(refused.status(), Status::ResourceExhausted);
        other.unwrap();
        later.unwrap();
    }
}
