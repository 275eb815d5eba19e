//! The channel of a connection's chunks: any number of senders, one receiver.
//!
//! A chunk takes its position in the queue when it is sent, and the receiver drains all queued chunks, so a
//! burst wakes the receiver once. Senders still experience backpressure: a chunk counts as taken when it is
//! the next to be received.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use parking_lot::{Mutex, MutexGuard};
use tokio::task::coop::poll_proceed;
use tokio_util::sync::CancellationToken;

use crate::{Emitter, Error, Result, Sending};

/// Creates a channel for the chunks of an action. Chunks sent after `completed` is cancelled are rejected.
pub(crate) fn chunk_channel<S: Send + 'static>(
    completed: CancellationToken,
) -> (Emitter<S>, ChunkReceiver<S>) {
    let channel = Arc::new(Channel(Mutex::new(State {
        queue: VecDeque::new(),
        received: 0,
        refused_from: u64::MAX,
        has_senders: true,
        receiver: None,
    })));
    let senders = Senders {
        channel: Arc::clone(&channel),
        completed,
    };
    let emitter = Emitter::queueing(move |chunk| senders.send(chunk));
    (emitter, ChunkReceiver(channel))
}

/// The receiving end of a channel. Dropping it rejects all chunks that were not taken.
pub(crate) struct ChunkReceiver<S>(Arc<Channel<S>>);

/// All senders of a channel. Dropped with the last of them.
struct Senders<S> {
    channel: Arc<Channel<S>>,
    completed: CancellationToken,
}

struct Channel<S>(Mutex<State<S>>);

struct State<S> {
    /// The chunks that were not received. The senders of all but the first wait.
    queue: VecDeque<Entry<S>>,
    /// The number of chunks that were received or withdrawn, which is the number of the first in the queue.
    received: u64,
    /// The number from which on chunks are rejected.
    refused_from: u64,
    has_senders: bool,
    receiver: Option<Waker>,
}

struct Entry<S> {
    /// `None` if it was withdrawn. Boxed, because the queue allocates four entries at once.
    chunk: Option<Box<S>>,
    is_taken: bool,
    sender: Option<Waker>,
}

/// A chunk's position in a channel. Dropping it withdraws the chunk unless it was taken.
pub(crate) struct Place {
    channel: Arc<dyn Waiting>,
    number: u64,
}

/// A channel from the view of a waiting sender.
trait Waiting: Send + Sync {
    fn poll_taken(&self, number: u64, cx: &Context<'_>) -> Poll<Result<()>>;
    fn withdraw(&self, number: u64);
}

impl Place {
    /// Waits until the chunk is taken.
    pub(crate) fn poll_taken(&self, cx: &Context<'_>) -> Poll<Result<()>> {
        self.channel.poll_taken(self.number, cx)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.channel.withdraw(self.number);
    }
}

impl<S> Channel<S> {
    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.0.lock()
    }
}

impl<S: Send + 'static> Senders<S> {
    fn send(&self, chunk: S) -> Sending {
        let chunk = Some(Box::new(chunk));
        let mut state = self.channel.state();
        let number = state.received + state.queue.len() as u64;
        if number >= state.refused_from {
            return Sending::done(Err(refused()));
        }
        let is_taken = state.queue.is_empty() && !self.completed.is_cancelled();
        state.queue.push_back(Entry {
            chunk,
            is_taken,
            sender: None,
        });
        let receiver = state.receiver.take();
        drop(state);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        if is_taken {
            return Sending::done(Ok(()));
        }
        Sending::at(Place {
            channel: Arc::clone(&self.channel) as Arc<dyn Waiting>,
            number,
        })
    }
}

impl<S> Drop for Senders<S> {
    fn drop(&mut self) {
        let mut state = self.channel.state();
        state.has_senders = false;
        let receiver = state.receiver.take();
        drop(state);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }
}

impl<S: Send> Waiting for Channel<S> {
    fn poll_taken(&self, number: u64, cx: &Context<'_>) -> Poll<Result<()>> {
        let mut state = self.state();
        if number >= state.refused_from {
            return Poll::Ready(Err(refused()));
        }
        match state.waiting(number) {
            Some(entry) => {
                wait(&mut entry.sender, cx);
                Poll::Pending
            }
            None => Poll::Ready(Ok(())),
        }
    }

    fn withdraw(&self, number: u64) {
        let chunk = self.state().waiting(number).and_then(|entry| entry.chunk.take());
        // Dropped after the lock is released, because dropping a chunk may run arbitrary code.
        drop(chunk);
    }
}

impl<S> ChunkReceiver<S> {
    /// Returns the next chunk; `None` after the last, when all senders are dropped.
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<S>> {
        let proceed = ready!(poll_proceed(cx));
        let received = self.poll_next(cx);
        if received.is_ready() {
            proceed.made_progress();
        }
        received
    }

    fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<S>> {
        let mut state = self.0.state();
        if let Some((chunk, next)) = state.pop() {
            drop(state);
            next.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(*chunk));
        }
        if !state.has_senders {
            return Poll::Ready(None);
        }
        wait(&mut state.receiver, cx);
        Poll::Pending
    }

    /// Rejects all chunks that are not taken, and returns the one that is.
    pub(crate) fn end(&mut self) -> Option<S> {
        let mut state = self.0.state();
        let has_taken = state.queue.front().is_some_and(|entry| entry.is_taken);
        state.refused_from = state.refused_from.min(state.received + u64::from(has_taken));
        let taken = if has_taken { state.pop() } else { None };
        let (taken, next) = taken.unzip();
        let refused = std::mem::take(&mut state.queue);
        drop(state);
        let senders = refused.into_iter().filter_map(|entry| entry.sender);
        senders.chain(next.flatten()).for_each(Waker::wake);
        taken.map(|chunk| *chunk)
    }
}

impl<S> State<S> {
    /// Removes the first chunk. The next one then counts as taken, and its sender's waker is returned.
    fn pop(&mut self) -> Option<(Box<S>, Option<Waker>)> {
        let first = loop {
            self.received += u64::from(!self.queue.is_empty());
            if let Some(chunk) = self.queue.pop_front()?.chunk {
                break chunk;
            }
        };
        while self.queue.front().is_some_and(|entry| entry.chunk.is_none()) {
            self.queue.pop_front();
            self.received += 1;
        }
        let next = self.queue.front_mut().and_then(|entry| {
            entry.is_taken = true;
            entry.sender.take()
        });
        Some((first, next))
    }

    /// Returns the entry of a chunk that is still waiting; `None` if it was taken, received or rejected.
    fn waiting(&mut self, number: u64) -> Option<&mut Entry<S>> {
        let ahead = usize::try_from(number.checked_sub(self.received)?).ok()?;
        self.queue.get_mut(ahead).filter(|entry| !entry.is_taken)
    }
}

/// Registers the task to wake.
fn wait(waiting: &mut Option<Waker>, cx: &Context<'_>) {
    match waiting {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *waiting = Some(cx.waker().clone()),
    }
}

impl<S> Drop for ChunkReceiver<S> {
    fn drop(&mut self) {
        self.end();
    }
}

fn refused() -> Error {
    Error::cancelled("the receiver of the stream was dropped")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn received(receiver: &mut ChunkReceiver<u8>) -> Poll<Option<u8>> {
        receiver.poll_recv(&mut Context::from_waker(Waker::noop()))
    }

    fn is_taken(sending: &mut Sending) -> Option<bool> {
        sending.now_or_never().map(|outcome| outcome.is_ok())
    }

    #[test]
    fn chunks_that_wait_are_received_without_their_senders() {
        let (emitter, mut receiver) = chunk_channel(CancellationToken::new());
        let _sending = [emitter.send(1), emitter.send(2), emitter.send(3)];

        let all = [(); 3].map(|()| received(&mut receiver));

        assert_eq!(all, [1, 2, 3].map(|chunk| Poll::Ready(Some(chunk))));
        assert_eq!(received(&mut receiver), Poll::Pending);
    }

    #[test]
    fn a_chunk_is_taken_when_it_is_the_next_to_be_received() {
        let (emitter, mut receiver) = chunk_channel(CancellationToken::new());
        let [mut first, mut second, mut third] = [1, 2, 3].map(|chunk| emitter.send(chunk));
        assert_eq!(is_taken(&mut first), Some(true));
        assert_eq!(is_taken(&mut second), None);

        let _first = received(&mut receiver);

        assert_eq!(is_taken(&mut second), Some(true));
        assert_eq!(is_taken(&mut third), None);
    }

    #[test]
    fn a_chunk_whose_sender_gives_up_is_not_received() {
        let (emitter, mut receiver) = chunk_channel(CancellationToken::new());
        let [first, second, mut third] = [1, 2, 3].map(|chunk| emitter.send(chunk));

        drop((first, second));

        assert_eq!(received(&mut receiver), Poll::Ready(Some(1)));
        assert_eq!(is_taken(&mut third), Some(true));
        assert_eq!(received(&mut receiver), Poll::Ready(Some(3)));
    }

    #[test]
    fn the_stream_ends_when_all_senders_are_dropped_and_all_chunks_received() {
        let (emitter, mut receiver) = chunk_channel(CancellationToken::new());
        let sending = [emitter.send(1), emitter.send(2)];

        drop(emitter);

        assert_eq!(received(&mut receiver), Poll::Ready(Some(1)));
        assert_eq!(received(&mut receiver), Poll::Ready(Some(2)));
        assert_eq!(received(&mut receiver), Poll::Ready(None));
        drop(sending);
    }

    #[test]
    fn after_the_end_only_the_chunk_that_was_taken_is_received() {
        let (emitter, mut receiver) = chunk_channel(CancellationToken::new());
        let [mut first, mut second] = [1, 2].map(|chunk| emitter.send(chunk));

        assert_eq!(receiver.end(), Some(1));

        assert_eq!(is_taken(&mut first), Some(true));
        assert_eq!(is_taken(&mut second), Some(false));
        assert_eq!(is_taken(&mut emitter.send(3)), Some(false));
        assert_eq!(receiver.end(), None);
    }

    #[test]
    fn a_chunk_that_is_sent_after_the_completion_is_not_taken() {
        let completed = CancellationToken::new();
        let (emitter, mut receiver) = chunk_channel(completed.clone());
        completed.cancel();
        let mut late = emitter.send(1);
        assert_eq!(is_taken(&mut late), None);

        assert_eq!(receiver.end(), None);

        assert_eq!(is_taken(&mut late), Some(false));
    }
}
