//! Locks that outlive a panic.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Returns the value behind a lock. No critical section of this crate leaves the value half changed, so a
/// panic elsewhere does not make it unusable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
            *lock(&self.holder) != this,
            "{what} cannot be changed from inside a function that is changing {what}: let that function return first"
        );
        let value = lock(&self.value);
        *lock(&self.holder) = this;
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
        *lock(self.holder) = None;
    }
}
