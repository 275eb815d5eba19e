//! A lock that detects reentrance.

use std::ops::{Deref, DerefMut};
use std::thread::{self, ThreadId};

use parking_lot::{Mutex, MutexGuard};

/// A lock under which a user's function runs. If that function takes the same lock again, it panics with a
/// message; with a plain mutex the thread would wait for itself.
#[derive(Debug, Default)]
pub(crate) struct ChangeLock<T> {
    value: Mutex<T>,
    holder: Mutex<Option<ThreadId>>,
}

/// Holds a [`ChangeLock`] until it is dropped.
pub(crate) struct ChangeGuard<'a, T> {
    value: MutexGuard<'a, T>,
    holder: &'a Mutex<Option<ThreadId>>,
}

impl<T> ChangeLock<T> {
    /// Waits for the lock; `what` names the guarded value in the message of the panic.
    ///
    /// # Panics
    /// If this thread holds the lock already.
    pub(crate) fn enter(&self, what: &str) -> ChangeGuard<'_, T> {
        let this = Some(thread::current().id());
        assert!(
            *self.holder.lock() != this,
            "{what} cannot be changed from inside a function that is changing {what}: let that function return first"
        );
        let value = self.value.lock();
        *self.holder.lock() = this;
        ChangeGuard {
            value,
            holder: &self.holder,
        }
    }
}

impl<T> Deref for ChangeGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ChangeGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for ChangeGuard<'_, T> {
    fn drop(&mut self) {
        // The holder is removed before the value is unlocked, so that the next holder's name is not
        // overwritten.
        *self.holder.lock() = None;
    }
}
