//! Snapshot ids that are hashes of the state.
//!
//! The id is the SHA-256, in lower-case hexadecimal, of the state as one JSON object: its fields in the order
//! `sessionId`, `messages`, `custom`, `artifacts`, `promptInput`, each value in the canonical form of RFC
//! 8785. Fields that are absent on the wire are left out (a missing session id, custom state or prompt input,
//! an empty list of artifacts; the list of messages is always present). An entry `snapshotId` in the last
//! message's metadata is left out too, because it is this id. RFC 8785 treats numbers as doubles: two
//! integers beyond 2^53 that are the same double give the same id, and saving the second of two such states
//! is refused.
//!
//! The messages come first, after the session's id, so the hash of a conversation continues the hash of a
//! shorter one. Unfinished hashes are kept with the history's lineage, and only added messages are
//! serialised.

use std::io;
use std::sync::Arc;

use everturn_ai::{History, Message};
use everturn_core::{Error, Result, hex};
use parking_lot::Mutex;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{SessionId, SessionState, SnapshotId};

/// The metadata entry in which a message names the snapshot that it ended.
pub(crate) const SNAPSHOT_ID_ENTRY: &str = "snapshotId";

/// How many unfinished hashes a lineage keeps; the longest ones stay.
const MAX_CHECKPOINTS: usize = 64;

/// The kinds of snapshot ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SnapshotIds {
    /// A UUID of version 7, which sorts by time and is known before the turn runs.
    #[default]
    Uuid,
    /// A hash of the state: equal states of a session are one snapshot, written once, and
    /// [`Snapshot::verify`](crate::Snapshot::verify) checks whether a snapshot still holds the state of its
    /// id.
    ///
    /// The id of a turn's snapshot is not known before the turn ends, so
    /// [`TurnContext::snapshot_id`](crate::TurnContext::snapshot_id) is `None`. The snapshot of a background
    /// run needs an id before it has a state, so it gets a UUID.
    ContentAddressed,
}

impl SnapshotId {
    /// Returns the content-addressed id of a state: SHA-256 over `sessionId`, `messages`, `custom`,
    /// `artifacts` and `promptInput` in RFC 8785 form.
    ///
    /// # Errors
    /// `INTERNAL` if the state cannot be written as JSON.
    pub fn of_state(state: &SessionState) -> Result<Self> {
        Ok(hash(state)?.id)
    }

    /// Returns whether this has the form of a content-addressed id.
    pub fn is_content_addressed(&self) -> bool {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        self.as_str().len() == 64 && self.as_str().bytes().all(is_digit)
    }
}

/// An id, and the number of bytes that were hashed for it.
struct Hashed {
    id: SnapshotId,
    #[cfg_attr(not(test), expect(dead_code, reason = "what it costs is for tests to judge"))]
    bytes: u64,
}

/// An unfinished hash that counts its input.
#[derive(Clone)]
struct Hasher {
    sha: Sha256,
    bytes: u64,
}

impl Hasher {
    fn value(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json_canonicalizer::to_writer(value, self)
            .map_err(|error| Error::internal(format!("the state cannot be written as JSON: {error}")))
    }
}

impl io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sha.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hash(state: &SessionState) -> Result<Hashed> {
    let session = state.session_id.as_ref();
    let messages = &state.messages;
    // The last message may carry the snapshot's id, which is left out. Only the part before it is kept for
    // later hashes.
    let before_last = messages.truncate_to(messages.len().saturating_sub(1));
    let mut hasher = hash_messages(session, &before_last)?;
    if let Some(last) = messages.last() {
        separate(&mut hasher, before_last.len());
        hasher.value(&unstamped(last))?;
    }
    put(&mut hasher, b"]");
    if let Some(custom) = &state.custom {
        put(&mut hasher, br#","custom":"#);
        hasher.value(custom)?;
    }
    if !state.artifacts.is_empty() {
        put(&mut hasher, br#","artifacts":"#);
        hasher.value(&state.artifacts)?;
    }
    if let Some(input) = &state.prompt_input {
        put(&mut hasher, br#","promptInput":"#);
        hasher.value(input)?;
    }
    put(&mut hasher, b"}");
    Ok(Hashed {
        id: hex(&hasher.sha.finalize()).into(),
        bytes: hasher.bytes,
    })
}

/// Hashes everything up to these messages, starting from the nearest kept hash. The count begins there.
fn hash_messages(session: Option<&SessionId>, messages: &History) -> Result<Hasher> {
    let (mut hasher, start) = match nearest(session, messages) {
        Some((length, sha)) => (Hasher { sha, bytes: 0 }, length),
        None => (beginning(session)?, 0),
    };
    for (index, message) in (start..).zip(messages.since(start)) {
        separate(&mut hasher, index);
        hasher.value(message)?;
    }
    if messages.len() > start {
        checkpoints(messages).keep(session, messages.len(), &hasher.sha);
    }
    Ok(hasher)
}

fn beginning(session: Option<&SessionId>) -> Result<Hasher> {
    let mut hasher = Hasher {
        sha: Sha256::new(),
        bytes: 0,
    };
    put(&mut hasher, b"{");
    if let Some(session) = session {
        put(&mut hasher, br#""sessionId":"#);
        hasher.value(session)?;
        put(&mut hasher, b",");
    }
    put(&mut hasher, br#""messages":["#);
    Ok(hasher)
}

fn separate(hasher: &mut Hasher, index: usize) {
    if index > 0 {
        put(hasher, b",");
    }
}

fn put(hasher: &mut Hasher, bytes: &[u8]) {
    hasher.sha.update(bytes);
    hasher.bytes += bytes.len() as u64;
}

/// Returns the message without the id of the snapshot that it ended.
fn unstamped(message: &Message) -> Message {
    message.clone().without_metadata_entry(SNAPSHOT_ID_ENTRY)
}

/// Returns whether two states with the same id are equal in everything that the id covers.
pub(crate) fn holds_the_same(one: &SessionState, other: &SessionState) -> bool {
    let count = one.messages.len();
    let before_last = |state: &SessionState| state.messages.truncate_to(count.saturating_sub(1));
    let last = |state: &SessionState| state.messages.last().map(unstamped);
    count == other.messages.len()
        && before_last(one) == before_last(other)
        && last(one) == last(other)
        && one.custom == other.custom
        && one.artifacts == other.artifacts
        && one.prompt_input == other.prompt_input
}

/// Unfinished hashes over the messages of a lineage, sorted by the number of messages they cover.
#[derive(Default)]
struct Checkpoints(Mutex<Vec<Checkpoint>>);

struct Checkpoint {
    session: Option<SessionId>,
    length: usize,
    sha: Sha256,
}

fn checkpoints(messages: &History) -> Arc<Checkpoints> {
    messages.lineage().extension()
}

impl Checkpoints {
    fn keep(&self, session: Option<&SessionId>, length: usize, sha: &Sha256) {
        let mut kept = self.0.lock();
        kept.push(Checkpoint {
            session: session.cloned(),
            length,
            sha: sha.clone(),
        });
        kept.sort_by_key(|checkpoint| checkpoint.length);
        if kept.len() > MAX_CHECKPOINTS {
            kept.remove(0);
        }
    }

    /// Returns the hash over the most messages, but no more than `most`.
    fn longest(&self, session: Option<&SessionId>, most: usize) -> Option<(usize, Sha256)> {
        let kept = self.0.lock();
        kept.iter()
            .rev()
            .find(|checkpoint| checkpoint.length <= most && checkpoint.session.as_ref() == session)
            .map(|checkpoint| (checkpoint.length, checkpoint.sha.clone()))
    }
}

/// Returns the kept hash over the longest beginning of these messages.
fn nearest(session: Option<&SessionId>, messages: &History) -> Option<(usize, Sha256)> {
    let mut position = Some(messages);
    while let Some(history) = position {
        if let Some(found) = checkpoints(history).longest(session, history.len()) {
            return Some(found);
        }
        // A fork continues the hash of its origin.
        position = history.lineage().parent();
    }
    None
}

#[cfg(test)]
mod tests;
