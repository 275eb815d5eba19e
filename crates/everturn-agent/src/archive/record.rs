//! The form of an exported session: JSON Lines.
//!
//! The first line identifies the file. Every further line but the last is a snapshot, oldest first, whose
//! state holds only the messages that no earlier snapshot has: [`Base`] names the snapshot it continues from
//! and the number of messages it shares. The last line holds the totals, so that a truncated file is
//! recognised.

use everturn_core::{Error, Result};
use everturn_macros::wire;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use crate::{SessionId, Snapshot};

/// The version of the form in which sessions are exported.
pub const EXPORT_VERSION: u64 = 1;

/// The greatest length of a line of an export, in bytes.
pub const MAX_LINE: usize = 256 * 1024 * 1024;

pub(super) const FORMAT: &str = "everturn-session";

/// The first line, reduced to the fields that all versions share.
#[derive(Serialize, Deserialize)]
pub(super) struct Preamble {
    pub(super) format: String,
    pub(super) version: u64,
}

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Header {
    pub(super) format: String,
    pub(super) version: u64,
    pub(super) session_id: SessionId,
}

/// A line after the first.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Record {
    /// A snapshot; exported files call it a row.
    #[serde(rename = "row")]
    Entry(Box<Entry>),
    End(End),
}

/// A line that holds a snapshot.
#[wire(deny_unknown_fields)]
#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) snapshot: Snapshot,
    pub(super) base: Option<Base>,
}

/// The part of a snapshot's state that is taken from an earlier one.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Base {
    /// The number of the earlier snapshot, counted from zero.
    #[serde(rename = "row")]
    pub(super) entry: usize,
    /// The number of its messages that come before the snapshot's own.
    pub(super) messages: usize,
    /// The other fields that are the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) same: Vec<Field>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Field {
    Custom,
    Artifacts,
    PromptInput,
}

/// The last line.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct End {
    pub(super) snapshots: u64,
    pub(super) messages: u64,
}

/// Creates the error of a file that cannot be imported.
pub(super) fn unreadable(line: usize, fault: impl std::fmt::Display) -> Error {
    Error::invalid_argument(format!("line {line} of the export: {fault}")).with_public()
}

/// The lines of a file, read one at a time, none longer than [`MAX_LINE`].
pub(super) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    limit: usize,
    /// The number of the line read last, counted from one.
    pub(super) number: usize,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            line: Vec::new(),
            limit: MAX_LINE,
            number: 0,
        }
    }

    /// Returns the next line without its end; `None` after the last.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is too long; the errors of reading.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        self.number += 1;
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                return Ok((!self.line.is_empty()).then_some(self.line.as_slice()));
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(chunk.len());
            if self.line.len() + taken > self.limit {
                let fault = format!("is longer than the {} bytes that are allowed", self.limit);
                return Err(unreadable(self.number, fault));
            }
            self.line.extend_from_slice(&chunk[..taken]);
            self.reader.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(Some(self.line.as_slice()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;

    #[tokio::test]
    async fn lines_are_read_across_chunks_and_long_ones_are_refused() {
        let reader = tokio::io::BufReader::with_capacity(2, b"leek\n\nsalt".as_slice());
        let mut lines = Lines::new(reader);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(String::from_utf8(line.to_vec()).unwrap());
        }
        let mut long = Lines {
            limit: 3,
            ..Lines::new(tokio::io::BufReader::with_capacity(2, b"abc\nabcd".as_slice()))
        };

        assert_eq!(found, ["leek", "", "salt"]);
        assert_eq!(long.next().await.unwrap(), Some(b"abc".as_slice()));
        assert_eq!(long.next().await.unwrap_err().status(), Status::InvalidArgument);
    }
}
