//! Walking the messages of a request.

use std::{iter::FlatMap, slice};

use super::piece::{Piece, PieceIter};
use crate::Message;

/// The messages of a [`Messages`](super::Messages), in order or backwards.
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
