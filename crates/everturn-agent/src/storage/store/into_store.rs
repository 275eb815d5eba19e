//! Conversion into a shared store.

use std::sync::Arc;

use super::SessionStore;

/// A value that serves as an agent's store: a store, or a shared one.
pub trait IntoStore {
    /// Converts the value into a shared store.
    fn into_store(self) -> Arc<dyn SessionStore>;
}

impl<T: SessionStore> IntoStore for T {
    fn into_store(self) -> Arc<dyn SessionStore> {
        Arc::new(self)
    }
}

impl<T: SessionStore> IntoStore for Arc<T> {
    fn into_store(self) -> Arc<dyn SessionStore> {
        self
    }
}

impl IntoStore for Arc<dyn SessionStore> {
    fn into_store(self) -> Arc<dyn SessionStore> {
        self
    }
}
