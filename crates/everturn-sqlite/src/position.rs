//! Positions in stored lineages, and the keys of the messages there.

/// The low bits of a message's key, which hold its index.
pub(crate) const POSITION_BITS: u32 = 24;

const _: () = assert!(everturn_sql::MAX_MESSAGES == 1 << POSITION_BITS);

/// The first `len` messages along a stored lineage; `len` is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) lineage: i64,
    pub(crate) len: usize,
}

impl Position {
    pub(crate) fn new(lineage: i64, len: usize) -> Self {
        Self { lineage, len }
    }
}

/// Returns the key of the message at an index of a history. Numbers that only a damaged database contains
/// yield a key that no message has.
pub(crate) fn message_key(lineage: i64, index: usize) -> i64 {
    let index = i64::try_from(index).unwrap_or(i64::MAX);
    lineage.saturating_mul(1 << POSITION_BITS).saturating_add(index)
}

/// Returns the key after the last possible message of a lineage.
pub(crate) fn end_of_keys(lineage: i64) -> i64 {
    message_key(lineage.saturating_add(1), 0)
}

/// Returns the index of the message with a key.
pub(crate) fn message_index(key: i64) -> usize {
    usize::try_from(key & ((1 << POSITION_BITS) - 1)).expect("a mask leaves no sign")
}
