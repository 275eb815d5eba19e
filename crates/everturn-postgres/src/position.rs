//! The keys of sessions, lineages and documents, and positions in stored lineages.

use everturn_agent::store::Scope;
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
    pub(crate) fn of(scope: &Scope, session: &str) -> Self {
        let scope_name = scope.as_str().as_bytes();
        let mut hash = Sha256::new();
        // The length keeps a scope and a session apart from another scope and session that read alike.
        hash.update(scope_name.len().to_le_bytes());
        hash.update(scope_name);
        hash.update(session.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let (id, _) = digest.split_first_chunk::<16>().expect("a digest has 32 bytes");
        Self {
            tenant: tenant(scope),
            id: Uuid::from_bytes(*id),
        }
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
