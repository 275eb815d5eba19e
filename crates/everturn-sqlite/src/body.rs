//! Encoded JSON text as a column of SQLite: text, or a blob if it is compressed.

use std::borrow::Cow;

use everturn_sql::{Encoding, StoreFault, decompress};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

use crate::fault::{Fault, Outcome};

/// SQLite's own limit on the size of a value. A compressed frame that claims to be larger is damaged.
const MAX_BYTES: u64 = 1_000_000_000;

/// A value as it is bound to a statement.
pub(crate) enum Packed {
    Plain(String),
    Compressed(Vec<u8>),
}

impl Packed {
    pub(crate) fn of<'a>(encoding: Encoding, text: impl Into<Cow<'a, str>>) -> Outcome<Self> {
        let text = text.into();
        Ok(match encoding.compress(&text)? {
            Some(frame) => Self::Compressed(frame),
            None => Self::Plain(text.into_owned()),
        })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Compressed(frame) => frame.len(),
        }
    }
}

impl ToSql for Packed {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Plain(text) => ValueRef::Text(text.as_bytes()),
            Self::Compressed(frame) => ValueRef::Blob(frame),
        }))
    }
}

/// Decodes stored values, and reuses the buffer for decompressed ones.
#[derive(Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Returns the text of a stored value, which is valid until the next one is decoded.
    pub(crate) fn text<'a>(&'a mut self, value: ValueRef<'a>) -> Outcome<&'a str> {
        let bytes = match value {
            ValueRef::Text(bytes) => bytes,
            ValueRef::Blob(frame) => {
                decompress(frame, MAX_BYTES, &mut self.buffer)?;
                &self.buffer
            }
            _ => return Err(Fault::damaged("a body is neither text nor compressed text")),
        };
        std::str::from_utf8(bytes).map_err(|error| Fault::damaged(format!("a body is not UTF-8: {error}")))
    }
}
