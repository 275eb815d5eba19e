//! The pieces of a [`Messages`](super::Messages), and iteration over them.

use std::iter::FlatMap;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use crate::{Feature, History, Message, MessageStats};

/// The longest run. A longer one becomes a history, which extends without copying and keeps statistics.
const RUN_LIMIT: usize = 32;

#[derive(Debug, Clone)]
pub(super) enum Piece {
    Run(Arc<Vec<Message>>),
    /// The messages of `history` from index `from`. An owned history may be extended. A shared one belongs to
    /// a session, whose lineage must not receive messages that only a request holds.
    History {
        history: History,
        from: usize,
        owned: bool,
    },
}

/// A view of one piece of a [`Messages`](crate::Messages).
#[derive(Debug, Clone)]
pub enum Segment<'a> {
    /// Messages that the sequence holds itself.
    Run(&'a [Message]),
    /// The messages of a history from an index on.
    History {
        /// The history, which ends where the segment ends.
        history: &'a History,
        /// The index of the segment's first message in the history.
        from: usize,
    },
}

impl Piece {
    pub(super) fn run(messages: Vec<Message>) -> Self {
        Self::Run(Arc::new(messages))
    }

    pub(super) fn from_vec(messages: Vec<Message>) -> Self {
        if messages.len() <= RUN_LIMIT {
            Self::run(messages)
        } else {
            Self::owned(messages)
        }
    }

    pub(super) fn shared(history: History) -> Self {
        Self::History {
            history,
            from: 0,
            owned: false,
        }
    }

    fn owned(messages: impl IntoIterator<Item = Message>) -> Self {
        Self::History {
            history: messages.into_iter().collect(),
            from: 0,
            owned: true,
        }
    }

    pub(super) fn is_owned(&self) -> bool {
        !matches!(self, Self::History { owned: false, .. })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Run(run) => run.len(),
            Self::History { history, from, .. } => history.len() - from,
        }
    }

    pub(super) fn segment(&self) -> Segment<'_> {
        match self {
            Self::Run(run) => Segment::Run(run),
            Self::History { history, from, .. } => Segment::History { history, from: *from },
        }
    }

    /// Returns whether all messages of this piece are also in the other one, in the same lineage.
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::History { history, .. }, Self::History { history: other, .. }) => {
                other.shared_prefix(history) == history.len()
            }
            _ => false,
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<&Message> {
        match self {
            Self::Run(run) => run.get(index),
            Self::History { history, from, .. } => history.get(from + index),
        }
    }

    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        match self {
            _ if range.is_empty() => Self::run(Vec::new()),
            _ if range == (0..self.len()) => self.clone(),
            // A run is short, so a copy of a part of it costs little and needs no bounds.
            Self::Run(run) => Self::run(run[range].to_vec()),
            Self::History { history, from, owned } => Self::History {
                history: history.truncate_to(from + range.end),
                from: from + range.start,
                owned: *owned,
            },
        }
    }

    /// Extends an owned piece.
    pub(super) fn push(&mut self, message: Message) {
        match self {
            Self::Run(run) if run.len() < RUN_LIMIT => Arc::make_mut(run).push(message),
            Self::Run(run) => *self = Self::owned(run.iter().cloned().chain([message])),
            Self::History { history, .. } => history.push(message),
        }
    }

    /// Replaces a message of a run; returns the message if the piece must be split for it.
    pub(super) fn replace(&mut self, index: usize, message: Message) -> Result<(), Message> {
        match self {
            Self::Run(run) => {
                Arc::make_mut(run)[index] = message;
                Ok(())
            }
            Self::History { .. } => Err(message),
        }
    }

    pub(super) fn stats(&self) -> MessageStats {
        self.stats_before(self.len())
    }

    /// Returns the statistics of the first `len` messages of the piece.
    pub(super) fn stats_before(&self, len: usize) -> MessageStats {
        match self {
            Self::Run(run) => run[..len].iter().map(Message::stats).sum(),
            // The difference of two running totals, without iterating over the messages.
            Self::History { history, from, .. } => {
                history.stats_before(from + len) - history.stats_before(*from)
            }
        }
    }

    /// Returns the index of the piece's last message before `end` that has a feature.
    pub(super) fn last_with(&self, feature: Feature, end: usize) -> Option<usize> {
        match self {
            Self::Run(run) => {
                let has = |message: &Message| message.stats().messages_with(feature) > 0;
                run[..end.min(run.len())].iter().rposition(has)
            }
            Self::History { history, from, .. } => {
                let found = history.last_with(feature, from + end.min(self.len()))?;
                found.checked_sub(*from)
            }
        }
    }

    pub(super) fn next_with(&self, feature: Feature, start: usize) -> Option<usize> {
        match self {
            Self::Run(run) => {
                let has = |message: &Message| message.stats().messages_with(feature) > 0;
                Some(start + run.get(start..)?.iter().position(has)?)
            }
            Self::History { history, from, .. } => {
                history.next_with(feature, from + start).map(|index| index - from)
            }
        }
    }

    pub(super) fn iter(&self) -> PieceIter<'_> {
        match self {
            Self::Run(run) => PieceIter::Run(run.iter()),
            Self::History { history, from, .. } => PieceIter::History(history.since(*from)),
        }
    }
}

#[derive(Clone)]
pub(super) enum PieceIter<'a> {
    Run(std::slice::Iter<'a, Message>),
    History(crate::history::Iter<'a>),
}

impl<'a> Iterator for PieceIter<'a> {
    type Item = &'a Message;

    fn next(&mut self) -> Option<&'a Message> {
        match self {
            Self::Run(run) => run.next(),
            Self::History(history) => history.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Run(run) => run.size_hint(),
            Self::History(history) => history.size_hint(),
        }
    }
}

impl DoubleEndedIterator for PieceIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Run(run) => run.next_back(),
            Self::History(history) => history.next_back(),
        }
    }
}

/// An iterator over the messages of a [`Messages`](super::Messages), in either direction.
#[derive(Clone)]
pub struct Iter<'a>(Flattened<'a>);

type Flattened<'a> = FlatMap<slice::Iter<'a, Piece>, PieceIter<'a>, fn(&'a Piece) -> PieceIter<'a>>;

impl<'a> Iter<'a> {
    pub(super) fn new(pieces: &'a [Piece]) -> Self {
        Self(pieces.iter().flat_map(Piece::iter))
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Message;

    fn next(&mut self) -> Option<&'a Message> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}
