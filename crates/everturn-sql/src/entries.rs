//! The entries of a stream, for one reader.

use std::future::Future;

use everturn_core::Result;
use everturn_core::stream_log::{Entries, Entry, Position};
use futures::StreamExt;

/// Reads the entries of a stream, one after the other.
pub trait EntrySource: Send + 'static {
    /// Waits for the entry after a position.
    fn next(&mut self, after: Position) -> impl Future<Output = Result<Entry>> + Send;
}

/// Returns the entries after a position, up to the end of the stream or an error.
pub fn entries(source: impl EntrySource, after: Position) -> Entries {
    let reading = (source, after, false);
    futures::stream::unfold(reading, |(mut source, after, is_over)| async move {
        if is_over {
            return None;
        }
        let next = source.next(after).await;
        let (after, is_over) = match &next {
            Ok(entry) => (entry.position, entry.event.is_end()),
            Err(_) => (after, true),
        };
        Some((next, (source, after, is_over)))
    })
    .boxed()
}
