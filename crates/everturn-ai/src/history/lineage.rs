//! The append-only sequence of messages that histories point into.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::History;
use crate::{Message, MessageStats};

/// Identifies a lineage within a process, so that a store can remember which of its rows belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineageId(u64);

impl LineageId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// An append-only sequence of messages, possibly forked from another.
///
/// Only [`History::push`] adds to a lineage, and only at its tip.
pub struct Lineage {
    id: LineageId,
    parent: Option<History>,
    depth: usize,
    log: Log<Entry>,
    extensions: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

/// A message and the statistics of the whole history up to and including it.
pub(super) struct Entry {
    pub(super) message: Message,
    pub(super) total: MessageStats,
    /// The heap size of all messages up to and including this one.
    pub(super) heap_size: usize,
}

impl Lineage {
    pub(super) fn root() -> Self {
        Self {
            id: LineageId::next(),
            parent: None,
            depth: 0,
            log: Log::new(),
            extensions: Mutex::default(),
        }
    }

    /// Returns the approximate size of a lineage of that length in bytes, without its messages.
    pub(super) fn own_heap_size(len: usize) -> usize {
        // The extensions of a lineage are unfinished hashes and the like.
        const EXTENSIONS: usize = 256;
        size_of::<Self>() + EXTENSIONS + Log::<Entry>::rest_heap_size(len)
    }

    /// Creates a lineage that continues `parent` with `first`.
    pub(super) fn started(parent: Option<History>, first: Entry) -> Self {
        // With the depth, `shared_prefix` finds which of two lineages cannot be an ancestor of the other.
        let depth = parent.as_ref().map_or(0, |parent| parent.lineage().depth + 1);
        let lineage = Self {
            id: LineageId::next(),
            parent,
            depth,
            log: Log::new(),
            extensions: Mutex::default(),
        };
        let pushed = lineage.log.push_at(0, first);
        debug_assert!(pushed.is_ok(), "a new log is empty");
        lineage
    }

    /// This lineage's identity in the process.
    pub fn id(&self) -> LineageId {
        self.id
    }

    /// Returns where this lineage forked from another; `None` for one that started empty.
    pub fn parent(&self) -> Option<&History> {
        self.parent.as_ref()
    }

    /// Returns how many messages come before this lineage's own.
    pub fn base(&self) -> usize {
        self.parent.as_ref().map_or(0, History::len)
    }

    /// Returns the length of the longest history in this lineage, as of now.
    pub fn tip(&self) -> usize {
        self.base() + self.log.len()
    }

    /// Returns the value of type `T` that is attached to this lineage, created on first use and dropped with
    /// the lineage. Callers use it to cache facts about the messages.
    pub fn extension<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut extensions = self.extensions.lock();
        let known = extensions
            .iter()
            .find_map(|extension| Arc::clone(extension).downcast::<T>().ok());
        known.unwrap_or_else(|| {
            let made = Arc::new(T::default());
            extensions.push(Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
            made
        })
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn extend_at(&self, position: usize, entry: Entry) -> Result<(), Entry> {
        match position.checked_sub(self.base()) {
            Some(own) => self.log.push_at(own, entry),
            None => Err(entry),
        }
    }

    /// Returns the entry at an index of the whole history; the caller holds a position beyond it.
    pub(super) fn entry(&self, index: usize) -> &Entry {
        self.log
            .get(index - self.base())
            .expect("a position is never past what was appended")
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Lineage");
        debug
            .field("id", &self.id)
            .field("base", &self.base())
            .field("tip", &self.tip());
        debug.finish_non_exhaustive()
    }
}

/// A chain of branches may be thousands deep, so it is dropped in a loop and not by recursion.
impl Drop for Lineage {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        // Only the last holder dismantles an ancestor; any other reference keeps it alive.
        while let Some(mut lineage) = next.and_then(|history| Arc::into_inner(history.lineage)) {
            next = lineage.parent.take();
        }
    }
}

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
