//! An append-only list that can be read while it grows.

use std::sync::OnceLock;

use parking_lot::Mutex;

/// The number of messages stored inline: most lineages are branches of a turn or two, and only longer ones
/// allocate.
const INLINE: usize = 4;

/// An append-only list. Items never move or change, and readers take no lock.
pub(super) struct Log<T> {
    inline: [OnceLock<T>; INLINE],
    rest: OnceLock<Box<boxcar::Vec<T>>>,
    len: Mutex<usize>,
}

impl<T> Log<T> {
    pub(super) fn new() -> Self {
        Self {
            inline: [const { OnceLock::new() }; INLINE],
            rest: OnceLock::new(),
            len: Mutex::new(0),
        }
    }

    /// Returns the approximate size of a log of that length in bytes, without its inline items.
    pub(super) fn rest_heap_size(len: usize) -> usize {
        // The list of the other items is a table of 60 blocks; the first has 32 slots, and each further one
        // twice as many as the one before.
        const TABLE: usize = 60 * size_of::<usize>();
        const FIRST: usize = 32;
        if len <= INLINE {
            return 0;
        }
        let places = (len - INLINE + FIRST).next_power_of_two() - FIRST;
        TABLE + places * (size_of::<T>() + size_of::<usize>())
    }

    /// Appends if the log has exactly `expected` items, else returns the item.
    pub(super) fn push_at(&self, expected: usize, item: T) -> Result<(), T> {
        let mut len = self.len.lock();
        if *len != expected {
            return Err(item);
        }
        match self.inline.get(*len) {
            Some(slot) => slot.set(item)?,
            None => {
                self.rest.get_or_init(Box::default).push(item);
            }
        }
        *len += 1;
        Ok(())
    }

    pub(super) fn get(&self, index: usize) -> Option<&T> {
        match self.inline.get(index) {
            Some(slot) => slot.get(),
            None => self.rest.get()?.get(index - INLINE),
        }
    }

    pub(super) fn len(&self) -> usize {
        *self.len.lock()
    }
}
