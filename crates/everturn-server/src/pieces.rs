//! Answers as text, in pieces that are freed as they are sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{Result, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use serde::Serialize;

use crate::metrics::CallMeter;
use crate::permits::Permit;

/// The size of a piece.
const PIECE: usize = 64 * 1024;

/// A JSON text in pieces. A long text in one piece would be copied as it grows, and held to the last byte.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    full: VecDeque<Bytes>,
    last: BytesMut,
    length: usize,
}

impl Pieces {
    /// Serialises a value.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        let mut pieces = Self::default();
        serde_json::to_writer(&mut pieces, value).expect("what is answered is plain data");
        if !pieces.last.is_empty() {
            pieces.full.push_back(pieces.last.split().freeze());
        }
        pieces
    }

    /// Returns the length of the text.
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.last.extend_from_slice(bytes);
        self.length += bytes.len();
        while self.last.len() >= PIECE {
            self.full.push_back(self.last.split_to(PIECE).freeze());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The body of an answer. The call is under way, and its bytes are counted as its caller's, until they are sent.
pub(crate) struct Answer {
    pieces: Pieces,
    _meter: CallMeter,
    permit: Permit,
}

impl Answer {
    pub(crate) fn new(pieces: Pieces, meter: CallMeter, permit: Permit) -> Self {
        Self {
            pieces,
            _meter: meter,
            permit,
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.full.pop_front();
        Poll::Ready(piece.map(|piece| {
            self.pieces.length -= piece.len();
            self.permit.give_back(piece.len());
            Ok(Frame::data(piece))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.full.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.length as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_text_are_the_text() {
        let value = vec!["leek".repeat(10_000); 20];

        let pieces = Pieces::of(&value);

        let joined: Vec<u8> = pieces.full.iter().flatten().copied().collect();
        assert_eq!(joined, serde_json::to_vec(&value).unwrap());
        assert_eq!(pieces.length(), joined.len());
        assert!(pieces.full.iter().all(|piece| piece.len() <= PIECE));
    }
}
