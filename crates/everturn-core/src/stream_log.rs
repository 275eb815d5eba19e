//! Stream logs keep the events of a stream as they are sent, so that a reader can join late, leave and
//! reconnect.
//!
//! A stream is a sequence of chunks that ends with one output or one error. One writer appends to it; any
//! number of readers follow it, each from the beginning or from the last event it saw. The same log serves
//! streams over HTTP, whose client may lose its connection, and background runs, which clients can watch.
//!
//! ```
//! use everturn_core::Result;
//! use everturn_core::stream_log::{JsonText, MemoryStreamLog, Position, StreamEvent, StreamKey, StreamLog};
//! use futures::StreamExt;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! let log = MemoryStreamLog::new();
//! let key = StreamKey::new("ann", "dinner");
//!
//! let writer = log.open(&key).await?;
//! writer.append(JsonText::of(&"leek")?).await?;
//! let mut late = log.read(&key, Position::START).await?;
//! writer.finish(Ok(JsonText::of(&"soup")?)).await?;
//!
//! let first = late.next().await.expect("what was written before")?;
//! assert_eq!(first.event, StreamEvent::Chunk(JsonText::of(&"leek")?));
//! let end = late.next().await.expect("what was written since")?;
//! assert_eq!(end.event, StreamEvent::Done(JsonText::of(&"soup")?));
//! assert!(late.next().await.is_none());
//! # Ok(()) }
//! ```
//!
//! # What a log guarantees
//!
//! - **One writer.** A key is opened once; opening it again fails with `ALREADY_EXISTS` until the stream has
//!   expired. A writer that the log has declared dead cannot write any more.
//! - **No gaps.** Events have the positions 1, 2, 3 and so on, the end included. Every reader gets every
//!   event after its starting point once and in order, with exactly the text that was written. A crash can
//!   only lose the latest events, and none that a reader has received.
//! - **Nobody waits for a reader.** A slow reader slows down neither the writer nor other readers, and costs
//!   a bounded amount of memory, because it reads from the log at its own pace.
//! - **Every stream ends.** A writer that is dropped without finishing ends its stream with an error. If the
//!   writer's process died, the stream ends with an error after the writer has been silent for longer than
//!   the log allows. A stream that the log cannot keep, for example because it is full, ends with that error.
//!   Every reader gets the end, wherever it started.
//! - **A stream is bounded.** A stream that grows beyond the log's limit ends with `RESOURCE_EXHAUSTED`; its
//!   readers get the events before the limit first. Only the stream ends: the writer gets the error and may
//!   continue its work.
//! - **A log is bounded**, in all and for each [owner](StreamKey::owner): the oldest finished streams make
//!   room for new ones. If there are none, a stream is rejected or ends with `RESOURCE_EXHAUSTED`, and its
//!   writer continues without it.
//! - **Finished streams expire** some minutes after their end; reading them then fails with `NOT_FOUND`.
//!   Streams that are still being written never expire. A log removes expired streams when a stream is
//!   opened, and never returns one.
//! - **Scopes are separate.** A stream opened in one scope cannot be read or stopped from another.
//! - **Erased streams are gone.** [`StreamLog::erase`] removes the streams of a tenant or a session, of all
//!   processes, and no data of them stays in the log's files. Their writers fail from then on.
//! - **Durability** differs between logs; each log's documentation states it.

mod entry;
mod key;
mod memory;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

pub use self::entry::{Entry, JsonText, Position, StoredError, StreamEvent};
pub use self::key::{StreamKey, StreamSubject, SubjectNote};
pub use self::memory::{MemoryStreamLog, MemoryStreamLogOptions};
use crate::{Error, Reason, Result};

/// The stream ended because its writer disappeared without finishing it.
pub const WRITER_LOST: Reason = Reason::new("stream-writer-lost");

/// The entries of a stream in order; the last one is the stream's end.
///
/// An `Err` means that the log could not be read any further. It is the last item too, but the stream itself
/// may continue.
pub type Entries = BoxStream<'static, Result<Entry>>;

/// Keeps streams. The trait is object-safe; the [module](self)'s documentation lists its guarantees.
#[async_trait]
pub trait StreamLog: fmt::Debug + Send + Sync + 'static {
    /// Creates a stream.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is a stream with that key; `RESOURCE_EXHAUSTED` if the log has no room for
    /// another.
    async fn open(&self, key: &StreamKey) -> Result<Box<dyn StreamWriter>>;

    /// Reads the events after a position, those already written and then new ones, until the stream's end.
    ///
    /// [`Position::START`] is before the first event. If the position has not been written yet, the reader
    /// waits for it; if the stream ends before that position, the reader gets only the end.
    ///
    /// # Errors
    /// `NOT_FOUND` if the stream does not exist or has expired.
    async fn read(&self, key: &StreamKey, after: Position) -> Result<Entries>;

    /// Requests the stream's writer to stop, also in another process: see [`StreamWriter::stop_requested`]. A
    /// finished stream stays as it is.
    ///
    /// # Errors
    /// `NOT_FOUND` if the stream does not exist or has expired.
    async fn stop(&self, key: &StreamKey) -> Result<()>;

    /// Removes all streams of a subject permanently, finished or not, and returns their number.
    ///
    /// # Errors
    /// The log's own errors; `UNAVAILABLE` if the streams are removed but another process temporarily
    /// prevents their text from being wiped from the log's files: erase again.
    async fn erase(&self, subject: &StreamSubject) -> Result<u64>;
}

/// A value that serves as a stream log: a log, or a shared one.
pub trait IntoStreamLog {
    /// Converts the value into a shared log.
    fn into_stream_log(self) -> Arc<dyn StreamLog>;
}

impl<T: StreamLog> IntoStreamLog for T {
    fn into_stream_log(self) -> Arc<dyn StreamLog> {
        Arc::new(self)
    }
}

impl<T: StreamLog> IntoStreamLog for Arc<T> {
    fn into_stream_log(self) -> Arc<dyn StreamLog> {
        self
    }
}

impl IntoStreamLog for Arc<dyn StreamLog> {
    fn into_stream_log(self) -> Arc<dyn StreamLog> {
        self
    }
}

/// Writes one stream. If it is dropped without [`finish`](StreamWriter::finish), the stream ends with an
/// error.
#[async_trait]
pub trait StreamWriter: fmt::Debug + Send + Sync + 'static {
    /// Appends a chunk and returns its position. Readers receive it as soon as it is stored as durably as the
    /// log's documentation states, and not before.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there is no room: the stream has then ended, and every later call fails in the
    /// same way. `FAILED_PRECONDITION` if the log has declared the writer dead.
    async fn append(&self, chunk: JsonText) -> Result<Position>;

    /// Ends the stream with its output or its error, and returns when everything written is durable in this
    /// log.
    ///
    /// The log keeps one of an error's two messages: the public one if there is one, else the private one,
    /// which stays private for readers.
    ///
    /// # Errors
    /// As [`append`](StreamWriter::append): the stream has then already ended.
    async fn finish(self: Box<Self>, outcome: Result<JsonText>) -> Result<()>;

    /// Sets the subject of the stream once it is known; see [`StreamKey::about`].
    ///
    /// # Errors
    /// As [`append`](StreamWriter::append).
    async fn about(&self, subject: &StreamSubject) -> Result<()>;

    /// Returns a token that is cancelled when [`StreamLog::stop`] is called. The writer decides what to do
    /// then.
    fn stop_requested(&self) -> CancellationToken;
}

/// Creates the error that ends a stream whose writer disappeared, for implementations of a log.
pub fn writer_lost() -> Error {
    Error::unavailable("the stream broke off: its writer ended without finishing it")
        .with_public()
        .with_reason(WRITER_LOST)
}

/// Creates the error that ends a stream whose subject was erased, for implementations of a log.
pub fn erased() -> Error {
    Error::failed_precondition("the stream was erased with its session or tenant").with_public()
}

/// Creates the error that ends a stream larger than its log's limit of `max_bytes`, for implementations of a
/// log.
pub fn too_large(max_bytes: usize) -> Error {
    Error::resource_exhausted(format!(
        "the stream has grown beyond its limit of {max_bytes} bytes: allow more with max_stream_bytes"
    ))
    .with_public_message("the stream has grown too large to be kept")
}

/// Creates the error for opening a key that is taken, for implementations of a log.
pub fn already_exists(key: &StreamKey) -> Error {
    Error::already_exists(format!(
        "the stream '{}' already exists: choose another id",
        key.id()
    ))
    .with_public()
}

/// Creates the error for a stream that does not exist or has expired, for implementations of a log.
pub fn not_found() -> Error {
    Error::not_found("stream not found").with_public()
}
