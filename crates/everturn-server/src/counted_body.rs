//! Response bodies whose bytes count for their caller until they are sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::metrics::CallMeter;
use crate::permits::{Permit, ReadingPlace};

/// The most bytes that are passed to the connection at once. Bytes count until the connection asks for more.
const PIECE: usize = 64 * 1024;

/// The values that are held until the last byte of a call's response is sent.
pub(crate) struct Held {
    pub(crate) meter: CallMeter,
    pub(crate) permit: Permit,
}

/// The body of a response. The call counts as running, and its bytes count for its caller, until they are
/// sent.
pub(crate) struct CountedBody {
    body: Body,
    held: Held,
    /// Held until the first frame, because the response is built from the data that was read.
    reading: Option<ReadingPlace>,
    /// The bytes that are counted and not received from `body` yet.
    ahead: usize,
    /// The rest of the frame that is being sent.
    frame: Bytes,
    /// The size of the piece that is being sent.
    last: usize,
}

impl CountedBody {
    /// Wraps a body of which `ahead` bytes are counted in advance.
    pub(crate) fn wrap(body: Body, held: Held, reading: Option<ReadingPlace>, ahead: usize) -> Body {
        Body::new(Self {
            body,
            held,
            reading,
            ahead,
            frame: Bytes::new(),
            last: 0,
        })
    }
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        this.held.permit.give_back(std::mem::take(&mut this.last));
        if this.frame.is_empty() {
            let next = ready!(Pin::new(&mut this.body).poll_frame(cx));
            this.reading = None;
            match next.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => this.frame = data,
                Some(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                None => return Poll::Ready(None),
            }
            let counted = this.frame.len().min(this.ahead);
            this.held.permit.take(this.frame.len() - counted)?;
            this.ahead -= counted;
        }
        let piece = this.frame.split_to(this.frame.len().min(PIECE));
        this.last = piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.frame.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
