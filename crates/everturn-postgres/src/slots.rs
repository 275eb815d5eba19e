//! The connections that a store may have open at once.
//!
//! The server may allow fewer than the options ask for. A connection that it refuses lowers the number: calls
//! then wait for the connections that are open instead of asking for further ones. From time to time one more
//! is tried. While the server refuses connections, a store now and then closes one of its own, so that
//! another process gets its share.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long after a refusal, or after the last such attempt, one more connection is tried.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How often a connection is handed over to other processes while the server refuses connections.
const HAND_OVER_AFTER: Duration = Duration::from_secs(3);

/// The right to use, or to open, one connection.
pub(crate) type Slot = OwnedSemaphorePermit;

/// The connections that a store may have open at once.
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    total: usize,
    refused: Mutex<Refused>,
    waiting: AtomicUsize,
}

/// How many connections the server does not allow at present.
struct Refused {
    count: usize,
    at: Instant,
    /// When a connection was last handed over, and whether another one is due.
    handed_over: Instant,
    is_due: bool,
}

impl Slots {
    pub(crate) fn new(total: usize) -> Self {
        let now = Instant::now();
        Self {
            free: Arc::new(Semaphore::new(total)),
            total,
            refused: Mutex::new(Refused {
                count: 0,
                at: now,
                handed_over: now,
                is_due: false,
            }),
            waiting: AtomicUsize::new(0),
        }
    }

    fn refused(&self) -> MutexGuard<'_, Refused> {
        // Every change leaves the state whole.
        self.refused.lock()
    }

    /// Waits for a slot. Calls get theirs in order.
    pub(crate) async fn take(&self) -> Slot {
        self.restore_one();
        let _waiting = Waiting::begin(&self.waiting);
        let slot = Arc::clone(&self.free).acquire_owned().await;
        slot.expect("the slots of a store are never closed")
    }

    /// Gives a slot up because the server refused its connection. Returns `false` for the last slot, which is
    /// kept.
    pub(crate) fn give_up(&self, slot: Slot) -> bool {
        let mut refused = self.refused();
        refused.at = Instant::now();
        if refused.count + 1 >= self.total {
            return false;
        }
        refused.count += 1;
        refused.is_due |= refused.handed_over.elapsed() >= HAND_OVER_AFTER;
        slot.forget();
        true
    }

    /// Gives up the slot of an open connection, which the caller closes, if one is due to other processes.
    /// Returns the slot otherwise. The last slot is kept.
    pub(crate) fn hand_over(&self, slot: Slot) -> Option<Slot> {
        let mut refused = self.refused();
        if !refused.is_due || refused.count + 1 >= self.total {
            return Some(slot);
        }
        let now = Instant::now();
        *refused = Refused {
            count: refused.count + 1,
            at: now,
            handed_over: now,
            is_due: false,
        };
        slot.forget();
        None
    }

    /// Makes one slot usable again that was given up a while ago.
    fn restore_one(&self) {
        let mut refused = self.refused();
        if refused.count > 0 && refused.at.elapsed() >= TRY_AGAIN_AFTER {
            refused.count -= 1;
            refused.at = Instant::now();
            self.free.add_permits(1);
        }
    }

    /// Returns how many calls wait for a slot.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Counts a call while it waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection of the pool, and its slot. Both are free again when it is dropped.
pub(crate) struct Pooled {
    // Dropped first: the next holder of the slot finds the connection in the pool.
    object: Object,
    _slot: Slot,
}

impl Pooled {
    pub(crate) fn new(object: Object, slot: Slot) -> Self {
        Self { object, _slot: slot }
    }

    /// Closes the connection, because the outcome of its statement is unknown.
    pub(crate) fn close(self) {
        drop(Object::take(self.object));
    }
}

impl Deref for Pooled {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.object
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut ClientWrapper {
        &mut self.object
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refused_connection_is_tried_again_later_and_the_last_slot_is_kept() {
        let slots = Slots::new(3);
        let (first, second) = (slots.take().await, slots.take().await);

        assert!(slots.give_up(first) && slots.give_up(second));
        let last = slots.take().await;
        assert!(slots.take().now_or_never().is_none(), "two of three are refused");
        assert!(!slots.give_up(last));

        tokio::time::advance(TRY_AGAIN_AFTER).await;
        let (one, two) = (slots.take().await, slots.take().now_or_never());
        assert!(two.is_some(), "one more is tried");
        assert!(slots.take().now_or_never().is_none());
        drop((one, two));
        assert_eq!(slots.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_handed_over_now_and_then_while_others_are_refused() {
        let slots = Slots::new(3);
        let refused = slots.take().await;
        assert!(slots.give_up(refused));
        let kept = slots.hand_over(slots.take().await);
        assert!(kept.is_some(), "none at the start");
        drop(kept);

        tokio::time::advance(HAND_OVER_AFTER).await;
        let refused = slots.take().await;
        assert!(slots.give_up(refused));
        assert!(slots.hand_over(slots.take().await).is_none());
        let last = slots.hand_over(slots.take().await);
        assert!(last.is_some(), "one at a time");

        tokio::time::advance(HAND_OVER_AFTER).await;
        let refused = slots.take().await;
        assert!(slots.give_up(refused));
        let last = slots.hand_over(last.unwrap());
        assert!(last.is_some(), "the last one is kept");
    }
}
