//! A queue to one thread, which is woken once for as many items as it waits for.
//!
//! A channel wakes its receiver for every item. Waking a thread costs more than an item here, and the thread
//! wants many at once.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    /// How many items the thread waits for; 0 if it does not wait.
    wanted: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                items: VecDeque::new(),
                wanted: 0,
                is_closed: false,
            }),
            wake: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Every change is a single assignment, insertion or removal.
        self.state.lock()
    }

    /// Adds an item. Returns `false` if the queue is closed.
    pub(crate) fn push(&self, item: T) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        state.items.push_back(item);
        let is_awaited = state.wanted > 0 && state.items.len() >= state.wanted;
        // After the lock is released, so that the thread does not wake to wait for it.
        drop(state);
        if is_awaited {
            self.wake.notify_one();
        }
        true
    }

    /// Takes all items, after waiting until there are `count`, the queue is closed or the time has elapsed.
    pub(crate) fn take(&self, count: usize, within: Option<Duration>) -> VecDeque<T> {
        let mut state = self.state();
        state.wanted = count;
        let is_short = |state: &mut State<T>| state.items.len() < count && !state.is_closed;
        match within {
            Some(time) => {
                self.wake.wait_while_for(&mut state, is_short, time);
            }
            None => self.wake.wait_while(&mut state, is_short),
        }
        state.wanted = 0;
        std::mem::take(&mut state.items)
    }

    /// Takes all waiting items without blocking.
    pub(crate) fn take_ready(&self) -> VecDeque<T> {
        std::mem::take(&mut self.state().items)
    }

    /// Refuses further items. Queued items can still be taken.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_taken_in_their_order_once_there_are_enough() {
        let queue = Queue::new();

        std::thread::scope(|scope| {
            let taken = scope.spawn(|| queue.take(3, None));
            for item in 1..=3 {
                assert!(queue.push(item));
            }
            assert_eq!(taken.join().unwrap(), [1, 2, 3]);
        });
        assert!(queue.take_ready().is_empty());
    }

    #[test]
    fn fewer_items_are_taken_when_the_time_is_over() {
        let queue = Queue::new();
        queue.push(1);

        assert_eq!(queue.take(2, Some(Duration::ZERO)), [1]);
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_takes_nothing() {
        let queue = Queue::new();
        queue.push(1);
        queue.close();

        assert!(!queue.push(2));
        assert_eq!(queue.take(2, None), [1]);
        assert!(queue.take(2, None).is_empty());
    }
}
