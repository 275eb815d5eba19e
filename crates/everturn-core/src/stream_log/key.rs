//! The name of a stream.

use std::sync::Arc;

/// Names a stream: its id, within the scope of whoever it belongs to. Cloning is cheap.
///
/// A scope is whatever separates those who must not see each other's streams: a principal, a tenant, an agent. An id is
/// not a credential: without the right scope it leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    scope: Arc<str>,
    id: Arc<str>,
}

impl StreamKey {
    /// The stream of that id in that scope.
    pub fn new(scope: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self {
            scope: scope.into(),
            id: id.into(),
        }
    }

    /// Whose stream it is.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Which stream of theirs it is.
    pub fn id(&self) -> &str {
        &self.id
    }
}
