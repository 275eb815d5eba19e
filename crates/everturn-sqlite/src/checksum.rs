//! Checksums of stored bodies and rows.
//!
//! A checksum covers what a reader is given, after decompression, with long strings put back and patches applied. So it
//! also covers every reference that was followed on the way. Rows of earlier versions have none; see [`crate::upgrade`].

use rusqlite::types::ValueRef;

use crate::fault::{Fault, Outcome};

/// A checksum under computation.
#[derive(Clone, Default)]
pub(crate) struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Returns the checksum of a text that is stored under a key.
    pub(crate) fn of_text(key: i64, text: &str) -> i64 {
        Self::under(key, &Self::text(text))
    }

    /// Returns the checksum of a text whose key is not known yet.
    pub(crate) fn text(text: &str) -> Self {
        Self::default().with(ValueRef::Text(text.as_bytes()))
    }

    /// Returns the checksum of a text under a key, without reading the text again.
    pub(crate) fn under(key: i64, text: &Self) -> i64 {
        let mut checksum = Self::default().with(ValueRef::Integer(key));
        checksum.0.combine(&text.0);
        checksum.finish()
    }

    /// Adds a value, with its type and length, so that values next to each other stay apart.
    #[must_use]
    pub(crate) fn with(mut self, value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => self.0.update(b"n"),
            ValueRef::Integer(number) => self.tagged(b'i', &number.to_le_bytes()),
            ValueRef::Real(number) => self.tagged(b'r', &number.to_le_bytes()),
            ValueRef::Text(bytes) => self.tagged(b't', bytes),
            ValueRef::Blob(bytes) => self.tagged(b'b', bytes),
        }
        self
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.update(&[tag]);
        self.0.update(&bytes.len().to_le_bytes());
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> i64 {
        self.0.finalize().into()
    }
}

/// Compares a computed checksum with the stored one; a row of an earlier version has none.
pub(crate) fn check(what: &str, stored: Option<i64>, computed: impl FnOnce() -> i64) -> Outcome<()> {
    match stored {
        Some(stored) if stored != computed() => {
            Err(Fault::damaged(format!("{what} is not what its checksum says")))
        }
        _ => Ok(()),
    }
}
