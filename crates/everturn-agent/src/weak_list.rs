//! Values that others keep alive, by the registry of their agents.

use std::sync::{Arc, Weak};

use everturn_core::Registry;
use parking_lot::Mutex;

/// A list of values that it does not keep alive. A clone shares it.
pub(crate) struct WeakList<T: ?Sized>(Arc<Mutex<Vec<Weak<T>>>>);

impl<T: ?Sized + Send + Sync + 'static> WeakList<T> {
    /// Returns the list of a registry under a key, under which it is a value.
    pub(crate) fn of(registry: &Registry, key: &str) -> Self {
        // One at a time: two that find none must not make two.
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock();
        if let Some(list) = registry.value::<Self>(key) {
            return Self::clone(&list);
        }
        let list = Self(Arc::default());
        registry.set_value(key, list.clone());
        list
    }

    /// Adds a value, unless the list has it.
    pub(crate) fn add(&self, value: &Arc<T>) {
        let value = Arc::downgrade(value);
        let mut values = self.0.lock();
        values.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&value));
        values.push(value);
    }

    /// Returns the values that are still alive.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl<T: ?Sized> Clone for WeakList<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
