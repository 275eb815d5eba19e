//! The certification kit for stream logs.
//!
//! [`certify_stream_log`] checks any log against the contract of [`everturn_core::stream_log`]:
//!
//! ```
//! use std::time::Duration;
//!
//! use everturn_core::stream_log::MemoryStreamLog;
//! use everturn_testkit::certify::streams::{LogUnderTest, certify_stream_log};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! tokio::time::pause();
//! certify_stream_log(|| async {
//!     let log = MemoryStreamLog::options().keep_for(Duration::from_mins(1)).max_stream_bytes(50_000).build();
//!     LogUnderTest::new(log)
//!         .keeping_for(Duration::from_mins(1), |time| Box::pin(tokio::time::advance(time)))
//!         .bounded_by(50_000)
//! })
//! .await
//! .assert_kept();
//! # }
//! ```
//!
//! Logs differ in what a test can control: whether time can pass, whether a second handle can be opened as by
//! another process, how much of a stream is kept. Promises about an ability that [`LogUnderTest`] does not
//! have are not checked.
//!
//! [`stream_defects`] contains logs that each break one promise. A test shows that the kit detects each of
//! them.

mod elsewhere;
mod ends;
mod expiry;
mod following;
mod keys;
mod order;
mod room;
pub mod stream_defects;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::stream_log::{
    Entries, Entry, JsonText, Position, StreamEvent, StreamKey, StreamLog, StreamWriter,
};
use futures::StreamExt;
use futures::future::BoxFuture;

use super::{Certificate, Verdict, examine, list_promises};

/// How long a written event may take to reach readers.
const SOON: Duration = Duration::from_secs(10);

type Pass = dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync;

/// A log, and the abilities that a test controls.
#[must_use = "a log is examined by `certify_stream_log`"]
pub struct LogUnderTest {
    log: Arc<dyn StreamLog>,
    elsewhere: Option<Arc<dyn StreamLog>>,
    expiry: Option<Expiry>,
    max_stream_bytes: Option<usize>,
}

struct Expiry {
    keep_for: Duration,
    pass: Arc<Pass>,
}

impl LogUnderTest {
    /// Creates a log under test without further abilities.
    pub fn new(log: impl StreamLog) -> Self {
        Self {
            log: Arc::new(log),
            elsewhere: None,
            expiry: None,
            max_stream_bytes: None,
        }
    }

    /// Adds a second handle on the same streams, as another process would open it.
    pub fn elsewhere(mut self, log: impl StreamLog) -> Self {
        self.elsewhere = Some(Arc::new(log));
        self
    }

    /// Declares how long finished streams are kept, and how to make time pass for the log.
    pub fn keeping_for<F>(mut self, keep_for: Duration, pass: F) -> Self
    where
        F: Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    {
        let pass = Arc::new(pass);
        self.expiry = Some(Expiry { keep_for, pass });
        self
    }

    /// Declares about how many bytes of one stream are kept: between 10,000 and 10,000,000, so that a test
    /// can fill it.
    pub fn bounded_by(mut self, bytes: usize) -> Self {
        self.max_stream_bytes = Some(bytes);
        self
    }

    /// Opens a stream.
    async fn open(&self, id: &str) -> Result<Box<dyn StreamWriter>, String> {
        let opened = self.log.open(&key(id)).await;
        opened.map_err(|error| format!("stream {id:?} cannot be opened: {error}"))
    }

    /// Reads a stream that must exist.
    async fn read(&self, id: &str, after: u64) -> Result<Entries, String> {
        read(&*self.log, &key(id), after).await
    }
}

impl fmt::Debug for LogUnderTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogUnderTest")
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

type Check = fn(Arc<LogUnderTest>) -> BoxFuture<'static, Verdict>;

/// Runs every check that the log from `make` supports, each on a new log.
///
/// Needs a tokio runtime. Checks of concurrency find more on a runtime with several threads, and checks of
/// expiry may need paused time: run it on both.
pub async fn certify_stream_log<F, Fut>(mut make: F) -> Certificate
where
    F: FnMut() -> Fut,
    Fut: Future<Output = LogUnderTest>,
{
    let mut certificate = Certificate::default();
    let given = make().await;
    let mut promises = [
        order::promises(),
        following::promises(),
        ends::promises(),
        keys::promises(),
    ]
    .concat();
    if given.elsewhere.is_some() {
        promises.extend(elsewhere::promises());
    }
    if given.expiry.is_some() {
        promises.extend(expiry::promises());
    }
    if given.max_stream_bytes.is_some() {
        promises.extend(room::promises());
    }
    drop(given);
    for (promise, check) in promises {
        let log = Arc::new(make().await);
        certificate.note(promise, examine(check(log)).await);
    }
    certificate
}

fn key(id: &str) -> StreamKey {
    StreamKey::new("ann", id)
}

/// Returns a JSON text that changes if a log parses and serialises it.
fn chunk(number: u64) -> JsonText {
    JsonText::parse(format!("{{\"n\": {number},  \"price\":1.10}}")).expect("it is JSON in one line")
}

fn output() -> JsonText {
    JsonText::parse("\"soup\"").expect("it is JSON in one line")
}

async fn write(writer: &dyn StreamWriter, numbers: impl IntoIterator<Item = u64>) -> Verdict {
    for number in numbers {
        let position = writer.append(chunk(number)).await;
        let position = position.map_err(|error| format!("chunk {number} cannot be written: {error}"))?;
        if position != Position::new(number) {
            return Err(format!("chunk {number} is reported at {position}"));
        }
    }
    Ok(())
}

async fn finish(writer: Box<dyn StreamWriter>) -> Verdict {
    let finished = writer.finish(Ok(output())).await;
    finished.map_err(|error| format!("the stream cannot be finished: {error}"))
}

async fn read(log: &dyn StreamLog, key: &StreamKey, after: u64) -> Result<Entries, String> {
    let entries = log.read(key, Position::new(after)).await;
    entries.map_err(|error| format!("stream {key:?} cannot be read after {after}: {error}"))
}

/// Returns the next entry, which must arrive soon.
async fn next(entries: &mut Entries) -> Result<Option<Entry>, String> {
    let next = tokio::time::timeout(SOON, entries.next()).await;
    let next = next.map_err(|_| "an event that was written does not come".to_owned())?;
    next.transpose()
        .map_err(|error| format!("the log could not be read: {error}"))
}

/// Returns all entries up to the end, after which there must be none.
async fn rest(mut entries: Entries) -> Result<Vec<Entry>, String> {
    let mut all = Vec::new();
    while let Some(entry) = next(&mut entries).await? {
        if all.last().is_some_and(|last: &Entry| last.event.is_end()) {
            return Err(format!("{entry:?} comes after the end"));
        }
        all.push(entry);
    }
    match all.last() {
        Some(last) if last.event.is_end() => Ok(all),
        _ => Err(format!(
            "after {} events there is neither another nor an end",
            all.len()
        )),
    }
}

/// Returns the entries that a reader must receive after a position in a stream of so many chunks and an
/// output.
fn expected(after: u64, chunks: u64) -> Vec<Entry> {
    let chunk = |number| Entry {
        position: Position::new(number),
        event: StreamEvent::Chunk(chunk(number)),
    };
    let end = Entry {
        position: Position::new(chunks + 1),
        event: StreamEvent::Done(output()),
    };
    (after + 1..=chunks).map(chunk).chain([end]).collect()
}

/// Checks that a reader received the expected entries.
fn same(got: &[Entry], wanted: &[Entry]) -> Verdict {
    let matching = got
        .iter()
        .zip(wanted)
        .take_while(|(one, other)| one == other)
        .count();
    if matching == got.len() && matching == wanted.len() {
        return Ok(());
    }
    Err(format!(
        "event {} of {} should be {:?}, and is {:?}",
        matching + 1,
        wanted.len(),
        wanted.get(matching),
        got.get(matching)
    ))
}
