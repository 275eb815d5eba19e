//! The errors of applying a patch.

use std::fmt;

/// The reason why a [`JsonPatch`](super::JsonPatch) cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatchError {
    /// A path is neither empty nor begins with `/`.
    InvalidPointer(String),
    /// A `test` operation found another value at this path.
    TestFailed(String),
    /// An operation would nest the document deeper than 512 levels.
    TooDeep(String),
    /// The patch's `copy` operations together would add more than 64 MiB.
    TooLarge,
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidPointer(path) => {
                write!(
                    f,
                    "invalid JSON pointer {path:?}: it must be empty or start with \"/\""
                )
            }
            Self::TestFailed(path) => write!(f, "the patch's test failed at {path:?}"),
            Self::TooDeep(path) => write!(f, "the patch nests the document too deeply at {path:?}"),
            Self::TooLarge => f.write_str("the patch copies more than a document may hold"),
        }
    }
}

impl std::error::Error for PatchError {}
