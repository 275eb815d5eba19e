//! The keys of sessions, lineages and documents, and positions in stored lineages.

use everturn_agent::store::{Checksum, Scope};
use everturn_core::Error;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::fault::Outcome;

/// The key of a session: where its tenant's rows are placed, and the session's own key.
///
/// Both are hashes of names, so a key is known without asking the database. The session's own key covers the
/// scope too: two tenants that share a place still share no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionKey {
    pub(crate) tenant: i32,
    pub(crate) id: Uuid,
}

impl SessionKey {
    pub(crate) fn new(tenant: i32, id: Uuid) -> Self {
        Self { tenant, id }
    }

    /// Returns the key of a lineage of the session.
    pub(crate) fn lineage(self, number: i64) -> LineageKey {
        LineageKey {
            session: self,
            number,
        }
    }

    pub(crate) fn of(scope: &Scope, session: &str) -> Self {
        let scope_name = scope.as_str().as_bytes();
        let mut hash = Sha256::new();
        // The length keeps a scope and a session apart from another scope and session that read alike.
        hash.update(scope_name.len().to_le_bytes());
        hash.update(scope_name);
        hash.update(session.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let (id, _) = digest.split_first_chunk::<16>().expect("a digest has 32 bytes");
        Self::new(tenant(scope), Uuid::from_bytes(*id))
    }
}

/// Returns the place of a tenant's rows.
pub(crate) fn tenant(scope: &Scope) -> i32 {
    let digest: [u8; 32] = Sha256::digest(scope.as_str().as_bytes()).into();
    let (place, _) = digest.split_first_chunk::<4>().expect("a digest has 32 bytes");
    i32::from_le_bytes(*place)
}

/// Returns a new version of a session. It is random: a session that was deleted, or restored from a backup,
/// never comes back to a version that it had. Versions take an eighth of all numbers, so that documents can
/// be numbered by them.
pub(crate) fn new_version() -> i64 {
    fastrand::i64(1..i64::MAX >> 3)
}

/// The key of a stored lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LineageKey {
    pub(crate) session: SessionKey,
    pub(crate) number: i64,
}

/// The first `len` messages along a stored lineage; `len` is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) lineage: LineageKey,
    pub(crate) len: usize,
}

impl Position {
    pub(crate) fn new(lineage: LineageKey, len: usize) -> Self {
        Self { lineage, len }
    }
}

/// The key of a stored document.
pub(crate) type DocumentKey = (SessionKey, i64);

/// Converts a length to its column.
pub(crate) fn column(len: usize) -> Outcome<i32> {
    i32::try_from(len).map_err(|_| {
        Error::resource_exhausted(format!(
            "{len} is more than a session can number: begin a new session"
        ))
        .into()
    })
}

/// Converts a column to a length. A number that only a damaged database contains becomes zero, which no
/// position has.
pub(crate) fn length(column: i32) -> usize {
    usize::try_from(column).unwrap_or(0)
}

/// The checksum of the last message of a history.
pub(crate) type Tail = i64;

/// Returns the checksum of a message that follows one with the checksum `before`.
pub(crate) fn tail(before: Option<Tail>, number: i32, text: &str, random: i32) -> Tail {
    let sum = Checksum::default()
        .optional(before, Checksum::integer)
        .integer(number.into())
        .integer(random.into())
        .text(text);
    (i64::from(random) << 32) | sum.finish()
}

/// Returns whether a message with this checksum follows one with the checksum `before`.
pub(crate) fn follows(stored: Tail, before: Option<Tail>, number: i32, text: &str) -> bool {
    let random = i32::try_from(stored >> 32).expect("the upper half has 32 bits");
    stored == tail(before, number, text, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_covers_the_message_its_place_and_those_before() {
        for random in [7, -7] {
            let first = tail(None, 0, "leeks", random);
            let second = tail(Some(first), 1, "potatoes", random);

            assert!(follows(first, None, 0, "leeks") && follows(second, Some(first), 1, "potatoes"));
            assert!(!follows(second, Some(first), 1, "potato"));
            assert!(!follows(second, Some(first), 2, "potatoes"));
            assert!(!follows(second, None, 1, "potatoes"));
            assert!(!follows(second, Some(first + 1), 1, "potatoes"));
        }
        assert_ne!(tail(None, 0, "leeks", 1), tail(None, 0, "leeks", 2));
    }
}
