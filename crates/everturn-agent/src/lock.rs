//! Locks that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The value behind a lock. No critical section of this crate leaves what it guards half changed, so a panic elsewhere does
/// not make it unusable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
