//! The ids of sessions and snapshots.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $generated:expr, $doc_of_generate:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        #[schemars(with = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            #[doc = $doc_of_generate]
            pub fn generate() -> Self {
                Self($generated.to_string().into())
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the id unless it is empty: on the wire an empty id counts as none.
            pub(crate) fn given(self) -> Option<Self> {
                (!self.0.is_empty()).then_some(self)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.into())
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self(id.into())
            }
        }

        impl From<&$name> for $name {
            fn from(id: &$name) -> Self {
                id.clone()
            }
        }

        /// Converts `None` to the empty id, which every function that takes an id refuses.
        impl From<Option<$name>> for $name {
            fn from(id: Option<$name>) -> Self {
                id.unwrap_or_else(|| "".into())
            }
        }

        /// Converts `None` to the empty id, which every function that takes an id refuses.
        impl From<Option<&$name>> for $name {
            fn from(id: Option<&$name>) -> Self {
                id.cloned().into()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    };
}

id! {
    /// The id of a session: any non-empty string. Cloning is cheap.
    SessionId, Uuid::new_v4(), "A new random id."
}

id! {
    /// The id of a snapshot. Cloning is cheap.
    SnapshotId, Uuid::now_v7(), "A new id that sorts after those made before it."
}
