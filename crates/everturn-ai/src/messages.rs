//! The messages of a request.
//!
//! A request adds a few messages around an existing conversation. [`Messages`] keeps this structure: a short
//! list of pieces, each a small run of owned messages or a stretch of a shared [`History`]. Cloning,
//! appending and replacing one message cost the same whatever the length of the conversation. On the wire it
//! is a plain array.
//!
//! Repairing an invalid conversation is the last step before a model call, after all middleware and the
//! window. It changes only what this model receives; stored messages are never rewritten.

mod piece;

use std::borrow::Cow;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::piece::Piece;
pub use self::piece::{Iter, Segment};
use crate::history::Groups;
use crate::{Feature, History, Message, MessageStats, Role};

/// A sequence of messages that borrows long conversations instead of copying them.
///
/// ```
/// use everturn_ai::{History, Message, Messages};
///
/// let history = History::from_iter([Message::user("Leeks?"), Message::model("Soup.")]);
/// let mut messages = Messages::from(Message::system("You are a chef."));
/// messages.append(history);
/// messages.push(Message::user("And without butter?"));
///
/// assert_eq!(messages.len(), 4);
/// assert_eq!(messages.segments().count(), 3);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Messages {
    pieces: Vec<Piece>,
    len: usize,
}

impl Messages {
    /// Creates an empty sequence.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how many messages there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a double-ended iterator over the messages.
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(&self.pieces)
    }

    /// Returns the pieces that the sequence is made of.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = Segment<'_>> {
        self.pieces.iter().map(Piece::segment)
    }

    /// Returns each piece of the sequence as a separate sequence, and whether `other` shares its history.
    ///
    /// Histories are compared by their lineages, so the cost does not depend on the length of the
    /// conversation.
    pub fn pieces_shared_with(&self, other: &Self) -> impl Iterator<Item = (Self, bool)> {
        self.pieces.iter().map(|piece| {
            let is_shared = other.pieces.iter().any(|known| piece.is_shared_with(known));
            let messages = Self {
                pieces: vec![piece.clone()],
                len: piece.len(),
            };
            (messages, is_shared)
        })
    }

    /// Returns the message at an index.
    pub fn get(&self, index: usize) -> Option<&Message> {
        let (piece, offset) = self.locate(index)?;
        self.pieces[piece].get(index - offset)
    }

    /// Returns the first message.
    pub fn first(&self) -> Option<&Message> {
        self.get(0)
    }

    /// Returns the last message.
    pub fn last(&self) -> Option<&Message> {
        self.get(self.len.checked_sub(1)?)
    }

    /// Appends a message. This does not extend a shared history at the end.
    pub fn push(&mut self, message: impl Into<Message>) {
        let message = message.into();
        self.len += 1;
        match self.pieces.last_mut() {
            Some(last) if last.is_owned() => last.push(message),
            _ => self.pieces.push(Piece::run(vec![message])),
        }
    }

    /// Appends other messages, for instance a [`History`], without copying them.
    pub fn append(&mut self, other: impl Into<Self>) {
        for piece in other.into().pieces {
            self.append_piece(piece);
        }
    }

    /// Returns the messages in a range, shared with this sequence. The range is clamped to the length.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let mut slice = Self::new();
        let mut offset = 0;
        for piece in &self.pieces {
            let within = |index: usize| index.saturating_sub(offset).min(piece.len());
            slice.append_piece(piece.slice(within(range.start)..within(range.end)));
            offset += piece.len();
        }
        slice
    }

    /// Replaces the messages in a range. The range is clamped to the length.
    pub fn splice(&mut self, range: Range<usize>, replacement: impl IntoIterator<Item = Message>) {
        // Taken before the head replaces the sequence; both only refer to shared pieces.
        let tail = self.slice(range.end.max(range.start)..self.len);
        let mut spliced = self.slice(0..range.start);
        spliced.extend(replacement);
        spliced.append(tail);
        *self = spliced;
    }

    /// Replaces one message. An index past the end changes nothing.
    pub fn replace(&mut self, index: usize, message: Message) {
        let Some((piece, offset)) = self.locate(index) else {
            return;
        };
        // A shared history cannot be changed: it is split around the message instead.
        if let Err(message) = self.pieces[piece].replace(index - offset, message) {
            self.splice(index..index + 1, [message]);
        }
    }

    /// Returns the statistics of all messages without iterating over shared histories.
    pub fn stats(&self) -> MessageStats {
        self.pieces.iter().map(Piece::stats).sum()
    }

    /// Returns the statistics of the first `len` messages without iterating over shared histories.
    pub(crate) fn stats_before(&self, len: usize) -> MessageStats {
        let mut offset = 0;
        let mut stats = MessageStats::default();
        for piece in &self.pieces {
            if len <= offset {
                break;
            }
            stats += piece.stats_before((len - offset).min(piece.len()));
            offset += piece.len();
        }
        stats
    }

    /// Returns the index of the last message before `end` that has a feature, without iterating over shared
    /// histories.
    pub(crate) fn last_with(&self, feature: Feature, end: usize) -> Option<usize> {
        let mut offset = self.len;
        for piece in self.pieces.iter().rev() {
            offset -= piece.len();
            if let Some(found) = piece.last_with(feature, end.saturating_sub(offset)) {
                return Some(offset + found);
            }
        }
        None
    }

    /// Returns the index of the first message at or after `start` that has a feature, without iterating over
    /// shared histories.
    pub fn next_with(&self, feature: Feature, start: usize) -> Option<usize> {
        let mut offset = 0;
        for piece in &self.pieces {
            if let Some(found) = piece.next_with(feature, start.saturating_sub(offset)) {
                return Some(offset + found);
            }
            offset += piece.len();
        }
        None
    }

    /// Returns whether any message has a feature, without iterating over shared histories.
    pub fn any_with(&self, feature: Feature) -> bool {
        self.next_with(feature, 0).is_some()
    }

    /// Returns the index of the last message for which `wanted` holds, searching from the end.
    pub fn rposition(&self, wanted: impl FnMut(&Message) -> bool) -> Option<usize> {
        let after = self.iter().rev().position(wanted)?;
        Some(self.len - 1 - after)
    }

    /// Returns the piece that holds the message at an index, and the index of that piece's first message.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        let mut offset = 0;
        for (position, piece) in self.pieces.iter().enumerate() {
            if index < offset + piece.len() {
                return Some((position, offset));
            }
            offset += piece.len();
        }
        None
    }

    fn append_piece(&mut self, piece: Piece) {
        if piece.len() == 0 {
            return;
        }
        match (piece, self.pieces.last()) {
            (Piece::Run(run), Some(last)) if last.is_owned() => self.extend(run.iter().cloned()),
            (piece, _) => {
                self.len += piece.len();
                self.pieces.push(piece);
            }
        }
    }
}

impl From<Message> for Messages {
    fn from(message: Message) -> Self {
        vec![message].into()
    }
}

impl From<Vec<Message>> for Messages {
    fn from(messages: Vec<Message>) -> Self {
        let mut whole = Self::new();
        whole.append_piece(Piece::from_vec(messages));
        whole
    }
}

impl<const N: usize> From<[Message; N]> for Messages {
    fn from(messages: [Message; N]) -> Self {
        Vec::from(messages).into()
    }
}

impl From<&[Message]> for Messages {
    fn from(messages: &[Message]) -> Self {
        messages.to_vec().into()
    }
}

impl From<History> for Messages {
    fn from(history: History) -> Self {
        let mut whole = Self::new();
        whole.append_piece(Piece::shared(history));
        whole
    }
}

impl From<&History> for Messages {
    fn from(history: &History) -> Self {
        history.clone().into()
    }
}

impl FromIterator<Message> for Messages {
    fn from_iter<I: IntoIterator<Item = Message>>(messages: I) -> Self {
        messages.into_iter().collect::<Vec<_>>().into()
    }
}

impl Extend<Message> for Messages {
    fn extend<I: IntoIterator<Item = Message>>(&mut self, messages: I) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}

impl<'a> IntoIterator for &'a Messages {
    type Item = &'a Message;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl PartialEq for Messages {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Serialize for Messages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Message>::deserialize(deserializer)?.into())
    }
}

impl JsonSchema for Messages {
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

impl Messages {
    /// Returns valid messages in place of these; `None` if these are valid. See
    /// [`repaired`](crate::history::repaired).
    ///
    /// The part of a shared history that was found valid is not examined again.
    pub fn repaired(&self) -> Option<Self> {
        let mut groups = Groups::default();
        let mut offset = 0;
        for segment in self.segments() {
            let (history, from) = match segment {
                Segment::Run(run) => {
                    for message in run {
                        groups.take(message);
                    }
                    offset += run.len();
                    continue;
                }
                Segment::History { history, from } => (history, from),
            };
            let known = history.valid_before();
            // The segment may begin in the middle of a group, which is examined with the messages before the
            // segment.
            let begun: Vec<&Message> = history
                .since(from)
                .take_while(|message| message.role() != Role::Model)
                .collect();
            let first_group = from + begun.len();
            let is_known = known > first_group;
            for message in &begun {
                groups.take(message);
            }
            if is_known {
                groups.skip(known - first_group);
            }
            let rest = if is_known { known } else { first_group };
            history.since(rest).for_each(|message| groups.take(message));
            // An answer to a request before the segment is valid here, and not in the history alone.
            let answers = |message: &&Message| {
                message
                    .content()
                    .iter()
                    .any(|part| part.as_tool_response().is_some())
            };
            if is_known || from == 0 && !begun.iter().any(answers) {
                let valid_before = (groups.valid_before() + from).checked_sub(offset);
                history.found_valid_before(valid_before.unwrap_or_default());
            }
            offset += history.len() - from;
        }
        let repairs = groups.finish();
        if repairs.is_empty() {
            return None;
        }
        let mut repaired = Self::new();
        let mut next = 0;
        for repair in repairs {
            repaired.append(self.slice(next..repair.range.start));
            repaired.extend(repair.replacement);
            next = repair.range.end;
        }
        repaired.append(self.slice(next..self.len()));
        Some(repaired)
    }
}
