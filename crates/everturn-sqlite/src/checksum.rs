//! Checksums of stored bodies and rows.
//!
//! A checksum covers what a reader is given, after decompression, with long strings put back and patches
//! applied. So it also covers every reference that was followed on the way.

use everturn_agent::store;
use rusqlite::types::ValueRef;

use everturn_sql::StoreFault;

use crate::fault::{Fault, Outcome};

/// A checksum under computation.
#[derive(Clone, Default)]
pub(crate) struct Checksum(store::Checksum);

impl Checksum {
    /// Returns the checksum of a text that is stored under a key.
    pub(crate) fn of_text(key: i64, text: &str) -> i64 {
        Self::under(key, &Self::text(text))
    }

    /// Returns the checksum of a journal's record: of its text, under its number in the journal of a turn.
    pub(crate) fn of_record(scope: &str, session: &str, turn: &str, sequence: i64, text: &Self) -> i64 {
        let journal = store::Checksum::default().text(scope).text(session).text(turn);
        journal.integer(sequence).then(&text.0).finish()
    }

    /// Returns the checksum of a text whose key is not known yet.
    pub(crate) fn text(text: &str) -> Self {
        Self(store::Checksum::default().text(text))
    }

    /// Returns the checksum of a text under a key, without reading the text again.
    pub(crate) fn under(key: i64, text: &Self) -> i64 {
        store::Checksum::default().integer(key).then(&text.0).finish()
    }

    /// Adds a value.
    #[must_use]
    pub(crate) fn with(self, value: ValueRef<'_>) -> Self {
        Self(match value {
            ValueRef::Null => self.0.null(),
            ValueRef::Integer(number) => self.0.integer(number),
            ValueRef::Real(number) => self.0.real(number),
            ValueRef::Text(bytes) => self.0.text(bytes),
            ValueRef::Blob(bytes) => self.0.bytes(bytes),
        })
    }

    pub(crate) fn finish(self) -> i64 {
        self.0.finish()
    }
}

/// Compares a computed checksum with the stored one. A missing checksum is damage.
pub(crate) fn check(what: &str, stored: Option<i64>, computed: impl FnOnce() -> i64) -> Outcome<()> {
    if stored == Some(computed()) {
        return Ok(());
    }
    Err(Fault::damaged(format!("{what} is not what its checksum says")))
}
