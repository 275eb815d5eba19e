//! JSON Patch (RFC 6902): the form in which changes of a session's custom state reach clients.
//!
//! [`JsonPatch::diff`] is strict: it produces valid patches that any RFC 6902 implementation applies. It uses
//! `add`, `remove` and `replace` only, and visits object members in sorted order, so equal changes give equal
//! patches.
//!
//! [`JsonPatch::apply`] is lenient, so that a client's view survives a careless server: it creates missing
//! containers, skips operations on missing targets, and reads missing values as null. It understands every
//! operation of the RFC, never panics, and bounds what a hostile patch can build ([`PatchError::TooDeep`],
//! [`PatchError::TooLarge`]).
//!
//! ```
//! use everturn_agent::patch::JsonPatch;
//! use serde_json::json;
//!
//! let patch = JsonPatch::diff(&json!({"mood": "calm", "pantry": ["leek"]}), &json!({"mood": "proud", "pantry": ["leek", "salt"]}));
//! assert_eq!(
//!     serde_json::to_value(&patch)?,
//!     json!([
//!         {"op": "replace", "path": "/mood", "value": "proud"},
//!         {"op": "add", "path": "/pantry/-", "value": "salt"},
//!     ])
//! );
//!
//! let view = patch.apply(&json!({"mood": "calm", "pantry": ["leek"]}))?;
//! assert_eq!(view, json!({"mood": "proud", "pantry": ["leek", "salt"]}));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod diff;
mod pointer;

use std::fmt;
use std::sync::Arc;

pub(crate) use apply::same_value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A list of changes to a JSON document, applied in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct JsonPatch(pub Vec<PatchOperation>);

impl JsonPatch {
    /// Creates the patch that replaces any document by `value`.
    pub fn replace_document(value: impl Into<Arc<Value>>) -> Self {
        Self(vec![PatchOperation::Replace {
            path: String::new(),
            value: value.into(),
        }])
    }

    /// Returns whether the patch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the operations, in the order in which they apply.
    pub fn operations(&self) -> &[PatchOperation] {
        &self.0
    }
}

impl FromIterator<PatchOperation> for JsonPatch {
    fn from_iter<T: IntoIterator<Item = PatchOperation>>(operations: T) -> Self {
        Self(operations.into_iter().collect())
    }
}

/// One change of a [`JsonPatch`].
///
/// Paths are JSON pointers into the document. A null operand is written as `"value": null`; when reading, an
/// absent operand counts as null, because some peers drop nulls, and an operand on an operation that has none
/// is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOperation {
    /// Sets an object member, inserts an array element, or appends one (`-`).
    Add {
        /// Where the value goes.
        path: String,
        /// The value to add.
        #[serde(default)]
        value: Value,
    },
    /// Takes a value away; of the whole document, leaves null.
    Remove {
        /// What to take away.
        path: String,
    },
    /// Puts another value in place of one.
    Replace {
        /// What to replace.
        path: String,
        /// The new value. Shared, because it may be a whole document.
        #[serde(default)]
        value: Arc<Value>,
    },
    /// Takes a value away and adds it elsewhere.
    Move {
        /// Where the value is.
        from: String,
        /// Where it goes.
        path: String,
    },
    /// Adds a copy of a value elsewhere.
    Copy {
        /// Where the value is.
        from: String,
        /// Where the copy goes.
        path: String,
    },
    /// Fails the whole patch unless the value is the expected one.
    Test {
        /// What to look at.
        path: String,
        /// The expected value.
        #[serde(default)]
        value: Value,
    },
}

/// The reason why a [`JsonPatch`](JsonPatch) cannot be applied.
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
