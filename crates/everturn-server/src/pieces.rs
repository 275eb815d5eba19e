//! JSON responses in pieces that are freed as they are sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{Result, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use serde::Serialize;

use crate::metrics::CallMeter;
use crate::permits::Permit;

/// The size of a piece.
const PIECE: usize = 64 * 1024;

/// The initial capacity of a piece, enough for most responses.
const ROOM: usize = 4 * 1024;

/// A JSON text in pieces. One contiguous buffer would be copied as it grows, and held until the last byte is
/// sent.
#[derive(Debug)]
pub(crate) struct Pieces {
    full: VecDeque<Bytes>,
    last: Vec<u8>,
    length: usize,
}

impl Pieces {
    /// Serialises a value.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        let mut pieces = Self {
            full: VecDeque::with_capacity(1),
            last: Vec::with_capacity(ROOM),
            length: 0,
        };
        serde_json::to_writer(&mut pieces, value).expect("what is answered is plain data");
        if !pieces.last.is_empty() {
            pieces.full.push_back(std::mem::take(&mut pieces.last).into());
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
        let mut rest = bytes;
        while self.last.len() + rest.len() >= PIECE {
            let (fitting, later) = rest.split_at(PIECE - self.last.len());
            self.last.extend_from_slice(fitting);
            self.full
                .push_back(std::mem::replace(&mut self.last, Vec::with_capacity(ROOM)).into());
            rest = later;
        }
        self.last.extend_from_slice(rest);
        self.length += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The body of a response. The call is active, and its bytes count as its caller's, until they are sent.
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
