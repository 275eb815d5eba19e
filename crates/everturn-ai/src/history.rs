//! Histories: conversations that share their common prefix.
//!
//! A [`History`] is a position in a [`Lineage`], an append-only sequence of messages. A push at the end of a
//! lineage extends it in place; a push anywhere else starts a new lineage that refers to the fork point. So a
//! clone, a fork and an earlier position cost the same for ten messages and for ten thousand, and the shared
//! prefix of two histories is found without comparing messages. A holder never sees what another appends,
//! because each has its own position.
//!
//! Providers reject some histories, for instance one with a tool request that was never answered. [`checked`]
//! finds such faults, and [`repaired`] returns a valid history in its place.

mod group;
mod iter;
mod lineage;
mod validity;

use std::{borrow::Cow, fmt, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use self::group::Groups;
pub use self::{
    iter::Iter,
    lineage::{Lineage, LineageId},
    validity::{Fault, FaultKind, Repaired, awaiting, checked, closing, repaired},
};
use crate::{Feature, Message, MessageStats};

/// The messages of a conversation up to a point; cheap to clone, to fork and to extend.
///
/// ```
/// use everturn_ai::{History, Message};
///
/// let mut history = History::from_iter([Message::user("Leeks?"), Message::model("Soup.")]);
/// let mut other = history.clone();
/// history.push(Message::user("Hot, please."));
/// other.push(Message::user("Cold, please."));
///
/// assert_eq!(history.common_prefix(&other), 2);
/// assert_eq!(other.last().map(|message| message.text()), Some("Cold, please.".into()));
/// ```
#[derive(Clone)]
pub struct History {
    lineage: Arc<Lineage>,
    up_to: usize,
}

impl History {
    /// Creates an empty history in its own lineage.
    pub fn new() -> Self {
        Self {
            lineage: Arc::new(Lineage::root()),
            up_to: 0,
        }
    }

    /// Returns how many messages there are.
    pub fn len(&self) -> usize {
        self.up_to
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.up_to == 0
    }

    /// Returns the lineage that holds this position.
    pub fn lineage(&self) -> &Arc<Lineage> {
        &self.lineage
    }

    /// Adds a message at the end.
    ///
    /// Extends the lineage if this position is its tip; otherwise starts a new lineage from here. Both are
    /// constant time. If two holders at the same tip push at the same moment, one extends the lineage and the
    /// other forks it.
    pub fn push(&mut self, message: Message) {
        let total = self.stats() + message.stats();
        let heap_size = self.messages_heap_size() + message.heap_size();
        let entry = lineage::Entry {
            message,
            total,
            heap_size,
        };
        if let Err(entry) = self.lineage.extend_at(self.up_to, entry) {
            // A fork of the empty history has nothing to share.
            let parent = (self.up_to > 0).then(|| self.clone());
            self.lineage = Arc::new(Lineage::started(parent, entry));
        }
        self.up_to += 1;
    }

    /// Returns the message at an index.
    pub fn get(&self, index: usize) -> Option<&Message> {
        (index < self.up_to).then(|| &self.entry(index).message)
    }

    /// Returns the first message.
    pub fn first(&self) -> Option<&Message> {
        self.get(0)
    }

    /// Returns the last message.
    pub fn last(&self) -> Option<&Message> {
        self.get(self.up_to.checked_sub(1)?)
    }

    /// Returns a double-ended iterator over the messages.
    pub fn iter(&self) -> Iter<'_> {
        self.since(0)
    }

    /// Returns a double-ended iterator over the messages after the first `start`.
    pub fn since(&self, start: usize) -> Iter<'_> {
        Iter::new(self, start)
    }

    /// Returns the history as it was when it had `len` messages; the whole history if it is shorter.
    pub fn truncate_to(&self, len: usize) -> Self {
        if len >= self.up_to {
            return self.clone();
        }
        Self {
            lineage: Arc::clone(self.lineage_at(len)),
            up_to: len,
        }
    }

    /// Returns how many leading messages the two histories share in memory. Compares no messages.
    pub fn shared_prefix(&self, other: &Self) -> usize {
        let (mut mine, mut theirs) = (self, other);
        while !Arc::ptr_eq(&mine.lineage, &theirs.lineage) {
            // The deeper lineage cannot be an ancestor of the other, so its parent is compared next.
            let deeper = if mine.lineage.depth() >= theirs.lineage.depth() {
                &mut mine
            } else {
                &mut theirs
            };
            let Some(parent) = deeper.lineage.parent() else {
                return 0;
            };
            *deeper = parent;
        }
        mine.up_to.min(theirs.up_to)
    }

    /// Returns how many leading messages of the two histories are equal. Compares only messages that they do
    /// not share.
    pub fn common_prefix(&self, other: &Self) -> usize {
        let shared = self.shared_prefix(other);
        let equal = self
            .since(shared)
            .zip(other.since(shared))
            .take_while(|(mine, theirs)| mine == theirs);
        shared + equal.count()
    }

    /// Returns the approximate heap size of the history in bytes, in constant time. Histories that share
    /// messages share these bytes.
    pub fn heap_size(&self) -> usize {
        self.messages_heap_size() + Lineage::own_heap_size(self.up_to)
    }

    fn messages_heap_size(&self) -> usize {
        self.up_to
            .checked_sub(1)
            .map_or(0, |last| self.entry(last).heap_size)
    }

    /// Returns the statistics of all messages, in constant time.
    pub fn stats(&self) -> MessageStats {
        self.stats_before(self.up_to)
    }

    /// Returns the statistics of the first `len` messages.
    pub(crate) fn stats_before(&self, len: usize) -> MessageStats {
        len.checked_sub(1)
            .map_or_else(MessageStats::default, |last| self.entry(last).total)
    }

    /// Returns the index of the first message at or after `start` that has a feature, without iterating over
    /// the messages.
    pub fn next_with(&self, feature: Feature, start: usize) -> Option<usize> {
        let before = |len| self.stats_before(len).messages_with(feature);
        let seen = before(start.min(self.up_to));
        // The running counts make this a binary search, and a miss costs one lookup.
        if before(self.up_to) == seen {
            return None;
        }
        let (mut low, mut high) = (start, self.up_to - 1);
        while low < high {
            let middle = low.midpoint(high);
            if before(middle + 1) > seen {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }

    /// Returns the index of the last message before `end` that has a feature, without iterating over the
    /// messages.
    pub fn last_with(&self, feature: Feature, end: usize) -> Option<usize> {
        let end = end.min(self.up_to);
        let before = |len| self.stats_before(len).messages_with(feature);
        let count = before(end);
        if count == 0 {
            return None;
        }
        // The shortest prefix with all of them ends with the last one. It is usually near the end, where a
        // history with many forks is read quickly.
        let (mut low, mut high) = (0, end - 1);
        let mut back = 1;
        while let Some(len) = end.checked_sub(back) {
            if before(len) < count {
                low = len;
                break;
            }
            high = len.saturating_sub(1);
            back *= 2;
        }
        while low < high {
            let middle = low.midpoint(high);
            if before(middle + 1) == count {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }

    /// Returns the entry at `index`, which the caller keeps below the length.
    fn entry(&self, index: usize) -> &lineage::Entry {
        self.lineage_at(index + 1).entry(index)
    }

    /// Returns the lineage that holds the last of the first `len` messages.
    fn lineage_at(&self, len: usize) -> &Arc<Lineage> {
        let mut position = self;
        // A position in an ancestor belongs to the ancestor, so that a push there extends it if it is its
        // tip.
        while len <= position.lineage.base()
            && let Some(parent) = position.lineage.parent()
        {
            position = parent;
        }
        &position.lineage
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for History {
    fn eq(&self, other: &Self) -> bool {
        self.up_to == other.up_to && self.common_prefix(other) == self.up_to
    }
}

impl fmt::Debug for History {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.lineage.id();
        formatter
            .debug_struct("History")
            .field("lineage", &id)
            .field("up_to", &self.up_to)
            .finish()
    }
}

impl FromIterator<Message> for History {
    fn from_iter<I: IntoIterator<Item = Message>>(messages: I) -> Self {
        let mut history = Self::new();
        history.extend(messages);
        history
    }
}

impl Extend<Message> for History {
    fn extend<I: IntoIterator<Item = Message>>(&mut self, messages: I) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}

impl<'a> IntoIterator for &'a History {
    type Item = &'a Message;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Message>::deserialize(deserializer)?.into_iter().collect())
    }
}

impl JsonSchema for History {
    fn schema_name() -> Cow<'static, str> {
        Vec::<Message>::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<Message>::json_schema(generator)
    }
}
