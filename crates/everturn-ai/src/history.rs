//! Histories: conversations that share what they have in common.
//!
//! A [`History`] is a position in a [`Lineage`], an append-only line of messages. Going on from the end of a lineage
//! extends it in place; going on from anywhere else starts a new lineage that points at where it forked. So a clone, a
//! fork and a look back cost the same for ten messages and for ten thousand, and two histories know how much they
//! share without comparing messages. What one holder appends is never seen by another: each has its own position.

mod iter;
mod lineage;
mod log;

use std::{borrow::Cow, fmt, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::{
    iter::Iter,
    lineage::{Lineage, LineageId},
};
use crate::{Feature, Message, Tally};

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
    /// An empty history in a lineage of its own.
    pub fn new() -> Self {
        Self {
            lineage: Arc::new(Lineage::root()),
            up_to: 0,
        }
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.up_to
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.up_to == 0
    }

    /// The lineage in which this history is a position.
    pub fn lineage(&self) -> &Arc<Lineage> {
        &self.lineage
    }

    /// Adds a message at the end.
    ///
    /// Extends the lineage if this position is its tip; otherwise starts a new lineage from here. Both are constant
    /// time, and of two holders at the same tip that append at the same moment, one extends and the other forks.
    pub fn push(&mut self, message: Message) {
        let total = self.tally() + message.tally();
        if let Err(entry) = self
            .lineage
            .extend_at(self.up_to, lineage::Entry { message, total })
        {
            let parent = (self.up_to > 0).then(|| self.clone());
            self.lineage = Arc::new(Lineage::started(parent, entry));
        }
        self.up_to += 1;
    }

    /// The message at an index.
    pub fn get(&self, index: usize) -> Option<&Message> {
        (index < self.up_to).then(|| &self.entry(index).message)
    }

    /// The first message.
    pub fn first(&self) -> Option<&Message> {
        self.get(0)
    }

    /// The last message.
    pub fn last(&self) -> Option<&Message> {
        self.get(self.up_to.checked_sub(1)?)
    }

    /// The messages in order; also backwards.
    pub fn iter(&self) -> Iter<'_> {
        self.since(0)
    }

    /// The messages after the first `start`; also backwards.
    pub fn since(&self, start: usize) -> Iter<'_> {
        Iter::new(self, start)
    }

    /// The history as it was when it had `len` messages; all of it if it never had more.
    pub fn truncate_to(&self, len: usize) -> Self {
        if len >= self.up_to {
            return self.clone();
        }
        Self {
            lineage: Arc::clone(self.lineage_at(len)),
            up_to: len,
        }
    }

    /// How many leading messages the two histories hold by sharing them. Compares no messages.
    pub fn shared_prefix(&self, other: &Self) -> usize {
        let (mut mine, mut theirs) = (self, other);
        while !Arc::ptr_eq(&mine.lineage, &theirs.lineage) {
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

    /// How many leading messages of the two histories are equal. Only what they do not share is compared.
    pub fn common_prefix(&self, other: &Self) -> usize {
        let shared = self.shared_prefix(other);
        let equal = self
            .since(shared)
            .zip(other.since(shared))
            .take_while(|(mine, theirs)| mine == theirs);
        shared + equal.count()
    }

    /// What the messages hold, in numbers; does not walk them.
    pub fn tally(&self) -> Tally {
        self.tally_before(self.up_to)
    }

    /// What the first `len` messages hold, in numbers.
    pub(crate) fn tally_before(&self, len: usize) -> Tally {
        len.checked_sub(1)
            .map_or_else(Tally::default, |last| self.entry(last).total)
    }

    /// The index of the first message at or after `start` that has a feature; does not walk the messages.
    pub fn next_with(&self, feature: Feature, start: usize) -> Option<usize> {
        let before = |len| self.tally_before(len).messages_with(feature);
        let seen = before(start.min(self.up_to));
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

    /// The caller makes sure that `index` is below the length.
    fn entry(&self, index: usize) -> &lineage::Entry {
        self.lineage_at(index + 1).entry(index)
    }

    /// The lineage that holds the last of the first `len` messages.
    fn lineage_at(&self, len: usize) -> &Arc<Lineage> {
        let mut position = self;
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
