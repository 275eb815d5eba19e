//! Lines and columns of byte offsets.

use std::sync::Arc;

use crate::error::Location;

/// A place in a source, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Position {
    pub(crate) const START: Self = Self { line: 1, column: 1 };

    /// Returns the position of byte `offset` in `text`, where `text` starts at this position.
    pub(crate) fn advance(self, text: &str, offset: usize) -> Self {
        let before = &text[..offset];
        match before.rfind('\n') {
            None => Self {
                line: self.line,
                column: self.column + before.chars().count(),
            },
            Some(newline) => Self {
                line: self.line + before.bytes().filter(|byte| *byte == b'\n').count(),
                column: before[newline + 1..].chars().count() + 1,
            },
        }
    }

    /// Converts a position in a text that starts here to a position in the whole source.
    pub(crate) fn embed(self, inner: Self) -> Self {
        if inner.line == 1 {
            Self {
                line: self.line,
                column: self.column + inner.column - 1,
            }
        } else {
            Self {
                line: self.line + inner.line - 1,
                column: inner.column,
            }
        }
    }

    pub(crate) fn in_file(self, file: Option<&Arc<str>>) -> Location {
        Location {
            file: file.cloned(),
            line: self.line,
            column: self.column,
        }
    }
}
