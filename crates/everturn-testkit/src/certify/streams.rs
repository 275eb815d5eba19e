//! Does a stream log keep its promises?
//!
//! [`certify_stream_log`] runs the contract of [`everturn_core::stream_log`] against any log:
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
//! What a log can be made to do by a test differs: whether time can be made to pass, whether it can be opened twice as by
//! two processes, how much of a stream it keeps. A promise about something that [`LogUnderTest`] was not told how to do is
//! not examined.
//!
//! [`defects`] holds logs that break one promise each, and that the kit is shown to catch.

pub mod defects;
mod elsewhere;
mod ends;
mod expiry;
mod following;
mod keys;
mod order;
mod room;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::stream_log::{
    Entries, Entry, JsonText, Position, StreamEvent, StreamKey, StreamLog, StreamWriter,
};
use futures::StreamExt;
use futures::future::BoxFuture;

use super::{Certificate, Verdict, examine};

/// How long an event that has been written may take to be read.
const SOON: Duration = Duration::from_secs(10);

type Pass = dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync;

/// A log, and what a test can do to it.
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
    /// A log of which nothing else is known.
    pub fn new(log: impl StreamLog) -> Self {
        Self {
            log: Arc::new(log),
            elsewhere: None,
            expiry: None,
            max_stream_bytes: None,
        }
    }

    /// The same streams as another process sees them.
    pub fn elsewhere(mut self, log: impl StreamLog) -> Self {
        self.elsewhere = Some(Arc::new(log));
        self
    }

    /// How long finished streams are kept, and what makes time pass for the log.
    pub fn keeping_for<F>(mut self, keep_for: Duration, pass: F) -> Self
    where
        F: Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    {
        let pass = Arc::new(pass);
        self.expiry = Some(Expiry { keep_for, pass });
        self
    }

    /// About how many bytes are kept of one stream; between 10,000 and 10,000,000, so that it can be filled.
    pub fn bounded_by(mut self, bytes: usize) -> Self {
        self.max_stream_bytes = Some(bytes);
        self
    }

    /// Begins a stream.
    async fn open(&self, id: &str) -> Result<Box<dyn StreamWriter>, String> {
        let opened = self.log.open(&key(id)).await;
        opened.map_err(|error| format!("stream {id:?} cannot be opened: {error}"))
    }

    /// Reads a stream that has to be there.
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

/// Runs every check of the contract that `make` says how to do, each on a log of its own that `make` makes.
///
/// Needs a tokio runtime. Checks of concurrency are sharper on one with several threads, those of expiry may need one with
/// paused time: run it on both.
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

/// Lists a module's checks under the names of their promises.
macro_rules! list_promises {
    ($($promise:literal => $check:ident,)+) => {
        pub(super) fn promises() -> Vec<(&'static str, super::Check)> {
            vec![$(($promise, |log| Box::pin($check(log)))),+]
        }
    };
}
use list_promises;

fn key(id: &str) -> StreamKey {
    StreamKey::new("ann", id)
}

/// A JSON text that a log which reads and writes it anew would change.
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
            return Err(format!("chunk {number} is said to be at {position}"));
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

/// The next entry, which has to be there soon.
async fn next(entries: &mut Entries) -> Result<Option<Entry>, String> {
    let next = tokio::time::timeout(SOON, entries.next()).await;
    let next = next.map_err(|_| "an event that was written does not come".to_owned())?;
    next.transpose()
        .map_err(|error| format!("the log could not be read: {error}"))
}

/// All entries to the end, after which there must be nothing.
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

/// What a reader of a stream with so many chunks and an output gets after a position.
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

/// Checks that a reader got what it should have.
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
