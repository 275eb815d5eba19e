//! The wire form of a patch.

use std::sync::Arc;

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
