//! Streams that outlive their connection: what an action sends is written down as it comes, so that a reader may come
//! late, leave and come back.
//!
//! A stream is a sequence of chunks that ends with one output or one error. One writer appends to it; any number of
//! readers follow it, each from the beginning or from the last event it saw. The same log serves streams over HTTP, whose
//! client may lose its connection, and runs in the background, which somebody may want to watch.
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
//! - **One writer.** A key is opened once; opening it again fails with `ALREADY_EXISTS` until the stream has expired. A
//!   writer that was taken for dead cannot write any more.
//! - **No gaps.** Events have the positions 1, 2, 3 and so on, the end included. Every reader gets every event after its
//!   starting point once and in order, as the very text that was written. Whatever is lost in a crash is lost at the end.
//! - **Nobody waits for a reader.** A slow reader slows down neither the writer nor other readers, and costs a bounded
//!   amount of memory: it reads from the log when it gets there.
//! - **Every stream ends.** A writer that is dropped without finishing ends its stream with an error. One whose process
//!   died does so too, once it has been silent for longer than the log allows. A stream that can no longer be kept, for
//!   want of room for instance, ends with that error. The end is told to every reader, wherever it started.
//! - **A stream is bounded.** One that grows larger than the log keeps of one ends with `RESOURCE_EXHAUSTED`, for its
//!   readers after all that was kept. Only the stream is over: whoever writes it is told, and may go on with its work.
//! - **Finished streams expire**, some minutes after their end; then they are as unknown as if they had never been.
//!   Streams that somebody writes never do. A log sweeps by itself when a stream is opened, and never shows an expired
//!   one.
//! - **Scopes are apart.** A stream that was opened in one scope cannot be reached in another by any id.
//! - **Durability** is each log's own promise, stated in its documentation.

mod entry;
mod json_text;
mod key;
mod memory;
mod stored_error;

use std::fmt;

use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

pub use self::entry::{Entry, Position, StreamEvent};
pub use self::json_text::JsonText;
pub use self::key::StreamKey;
pub use self::memory::{MemoryStreamLog, MemoryStreamLogOptions};
pub use self::stored_error::StoredError;
use crate::{Error, Reason, Result};

/// The stream ended because whoever wrote it vanished without finishing.
pub const WRITER_LOST: Reason = Reason::new("stream-writer-lost");

/// What a reader gets: entries in order, of which the last is the stream's end.
///
/// An `Err` says that the log could not be read any further; it is the last item too, and says nothing about how the
/// stream itself goes on.
pub type Entries = BoxStream<'static, Result<Entry>>;

/// A place that keeps streams. Small and object-safe; what it must guarantee is in the [module](self)'s text.
#[async_trait]
pub trait StreamLog: fmt::Debug + Send + Sync + 'static {
    /// Begins a stream.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is one of that key; `RESOURCE_EXHAUSTED` if the log has no room for another.
    async fn open(&self, key: &StreamKey) -> Result<Box<dyn StreamWriter>>;

    /// Reads a stream from after that position: what is there, then what comes, to the end.
    ///
    /// [`Position::START`] is before the first event. A position that has not been written yet is waited for; a stream
    /// that is over before that gives its end alone.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such stream, or no longer.
    async fn read(&self, key: &StreamKey, after: Position) -> Result<Entries>;

    /// Asks whoever writes the stream to stop, in whichever process that is: see [`StreamWriter::stop_requested`]. A
    /// stream that is over is left as it is.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such stream, or no longer.
    async fn stop(&self, key: &StreamKey) -> Result<()>;
}

/// The one who writes a stream. Dropped without [`finish`](StreamWriter::finish), the stream ends with an error.
#[async_trait]
pub trait StreamWriter: fmt::Debug + Send + Sync + 'static {
    /// Adds a chunk and says where it is. Readers in this process see it at once; when it is durable is the log's
    /// promise.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there is no room: the stream is then over, and every later call says so too.
    /// `FAILED_PRECONDITION` if the writer was taken for dead meanwhile.
    async fn append(&self, chunk: JsonText) -> Result<Position>;

    /// Ends the stream with its output or its error, and returns when everything written is as durable as it gets.
    ///
    /// Of an error's two messages only one is kept: the public one if there is one, else the private one, which readers
    /// get as private.
    ///
    /// # Errors
    /// As [`append`](StreamWriter::append): the stream is then over already.
    async fn finish(self: Box<Self>, outcome: Result<JsonText>) -> Result<()>;

    /// Cancelled when somebody has asked the writer to stop. The writer decides what follows; the log only passes it on.
    fn stop_requested(&self) -> CancellationToken;
}

/// How a stream ends whose writer went without finishing; for those who implement a log.
pub fn writer_lost() -> Error {
    Error::unavailable("the stream broke off: whoever wrote it ended without finishing it")
        .with_public()
        .with_reason(WRITER_LOST)
}

/// How a stream ends that has grown larger than this, which is what its log keeps of one; for those who implement a log.
pub fn too_large(max_bytes: usize) -> Error {
    Error::resource_exhausted(format!(
        "the stream has grown larger than the {max_bytes} bytes that are kept of one: allow it more with max_stream_bytes"
    ))
    .with_public_message("the stream has grown too large to be kept")
}

/// What a log says of a key that is taken.
pub fn already_exists(key: &StreamKey) -> Error {
    Error::already_exists(format!(
        "there is a stream '{}' already: choose another id",
        key.id()
    ))
    .with_public()
}

/// What a log says of a key that it does not know, or no longer.
pub fn not_found() -> Error {
    Error::not_found("stream not found").with_public()
}
