//! The name of a stream.

use std::sync::Arc;

/// The name of a stream: an id within the scope of its owner. Cloning is cheap.
///
/// A scope separates owners that must not see each other's streams, such as principals, tenants or agents. An id is not
/// a credential: without its scope it finds no stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    scope: Arc<str>,
    id: Arc<str>,
}

impl StreamKey {
    /// Creates the key of the stream `id` in `scope`.
    pub fn new(scope: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self {
            scope: scope.into(),
            id: id.into(),
        }
    }

    /// Returns the scope of the stream's owner.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Returns the stream's id within its scope.
    pub fn id(&self) -> &str {
        &self.id
    }
}
