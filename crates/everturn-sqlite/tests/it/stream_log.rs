//! The promises of the stream log in SQLite beyond one process and its life.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use everturn_agent::Clock;
use everturn_core::stream_log::{
    Entries, Entry, JsonText, Position, StreamEvent, StreamKey, StreamLog, StreamWriter, WRITER_LOST,
};
use everturn_core::{Error, Exposure, Result, Status};
use everturn_sqlite::{SqliteStore, SqliteStreamLog, SqliteStreamLogOptions};
use everturn_testkit::{eventually, real_pause};
use futures::future::poll_fn;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

const PATH: &str = "EVERTURN_TEST_STREAMS";

/// A clock that is ahead of the system's by a variable offset.
#[derive(Clone, Default)]
struct Ahead(Arc<AtomicI64>);

impl Ahead {
    fn by(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }

    fn clock(&self) -> Clock {
        let ahead = Arc::clone(&self.0);
        Clock::new(move || Timestamp::now() + SignedDuration::from_secs(ahead.load(Ordering::SeqCst)))
    }
}

struct Fixture {
    folder: TempDir,
    ahead: Ahead,
}

impl Fixture {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            ahead: Ahead::default(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("streams.db")
    }

    /// The number of batches in the file.
    fn batches(&self) -> u64 {
        let database = rusqlite::Connection::open(self.path()).unwrap();
        database
            .query_row("SELECT count(*) FROM batch", [], |row| row.get(0))
            .unwrap()
    }

    fn options(&self) -> SqliteStreamLogOptions {
        SqliteStreamLog::options(self.path()).clock(self.ahead.clock())
    }

    async fn open(&self) -> SqliteStreamLog {
        self.options().open().await.unwrap()
    }
}

fn key() -> StreamKey {
    StreamKey::new("ann", "dinner")
}

fn text(value: impl serde::Serialize) -> JsonText {
    JsonText::of(&value).unwrap()
}

fn entry(position: u64, event: StreamEvent) -> Entry {
    Entry {
        position: Position::new(position),
        event,
    }
}

async fn write(log: &SqliteStreamLog, count: u64) -> Box<dyn StreamWriter> {
    let writer = log.open(&key()).await.unwrap();
    for n in 1..=count {
        assert_eq!(writer.append(text(n)).await.unwrap(), Position::new(n));
    }
    writer
}

/// A stream of that many chunks and an output.
fn whole(count: u64) -> Vec<Entry> {
    let chunks = (1..=count).map(|n| entry(n, StreamEvent::Chunk(text(n))));
    chunks
        .chain([entry(count + 1, StreamEvent::Done(text("soup")))])
        .collect()
}

async fn read(log: &SqliteStreamLog, after: u64) -> Entries {
    log.read(&key(), Position::new(after)).await.unwrap()
}

async fn rest(entries: Entries) -> Vec<Entry> {
    entries.map(Result::unwrap).collect().await
}

async fn refused(log: &SqliteStreamLog) -> Status {
    log.read(&key(), Position::START).await.err().unwrap().status()
}

fn failure(entries: &[Entry]) -> Error {
    match &entries.last().unwrap().event {
        StreamEvent::Failed(error) => error.clone(),
        other => panic!("expected an error, got {other:?}"),
    }
}

#[tokio::test]
async fn every_reader_gets_the_same_events_here_elsewhere_and_after_a_restart() {
    let fixture = Fixture::new();
    let (here, elsewhere) = (fixture.open().await, fixture.open().await);

    let writer = write(&here, 3).await;
    let early = read(&here, 0).await;
    writer.finish(Ok(text("soup"))).await.unwrap();

    assert_eq!(rest(early).await, whole(3));
    for after in 0..=3 {
        let expected = &whole(3)[usize::try_from(after).unwrap()..];
        assert_eq!(rest(read(&here, after).await).await, expected);
        assert_eq!(rest(read(&elsewhere, after).await).await, expected);
    }
    for after in [4, u64::MAX] {
        assert_eq!(rest(read(&elsewhere, after).await).await, whole(3)[3..]);
    }
    drop((here, elsewhere));
    assert_eq!(rest(read(&fixture.open().await, 0).await).await, whole(3));
}

#[tokio::test]
async fn a_reader_elsewhere_follows_a_stream_as_it_is_written() {
    let fixture = Fixture::new();
    let (here, elsewhere) = (fixture.open().await, fixture.open().await);
    let writer = here.open(&key()).await.unwrap();
    let mut follower = read(&elsewhere, 0).await;

    for n in 1..=5 {
        writer.append(text(n)).await.unwrap();
        assert_eq!(
            follower.next().await.unwrap().unwrap(),
            entry(n, StreamEvent::Chunk(text(n)))
        );
    }
    assert!(follower.next().now_or_never().is_none());
    writer.finish(Ok(text("soup"))).await.unwrap();

    assert_eq!(rest(follower).await, whole(5)[5..]);
}

#[tokio::test]
async fn a_slow_reader_loses_nothing_and_chunks_share_rows() {
    let fixture = Fixture::new();
    let log = fixture.open().await;
    let writer = log.open(&key()).await.unwrap();
    let slow = read(&log, 0).await;

    let filler = "x".repeat(700);
    for n in 0..5_000_u64 {
        writer.append(text((n, &filler))).await.unwrap();
    }
    writer.finish(Ok(text("soup"))).await.unwrap();

    let seen: Vec<u64> = slow
        .map(|entry| match entry.unwrap().event {
            StreamEvent::Chunk(chunk) => chunk.read::<(u64, String)>().unwrap().0,
            _ => u64::MAX,
        })
        .collect()
        .await;
    assert_eq!(seen.len(), 5_001);
    assert!(seen[..5_000].iter().copied().eq(0..5_000));
    let db = rusqlite::Connection::open(fixture.path()).unwrap();
    let rows: u64 = db
        .query_row("SELECT count(*) FROM batch", [], |row| row.get(0))
        .unwrap();
    assert!(rows < 500, "{rows} rows for 5,000 chunks");
}

#[tokio::test]
async fn a_key_is_opened_once_by_anybody_and_unknown_in_other_scopes() {
    let fixture = Fixture::new();
    let (here, elsewhere) = (fixture.open().await, fixture.open().await);
    let _writer = here.open(&key()).await.unwrap();
    let foreign = StreamKey::new("bob", "dinner");

    for log in [&here, &elsewhere] {
        assert_eq!(
            log.open(&key()).await.unwrap_err().status(),
            Status::AlreadyExists
        );
        let error = log.read(&foreign, Position::START).await.err().unwrap();
        assert_eq!(error.status(), Status::NotFound);
        assert_eq!(log.stop(&foreign).await.unwrap_err().status(), Status::NotFound);
    }
}

#[tokio::test]
async fn a_writer_that_is_dropped_ends_its_stream_with_an_error_everywhere() {
    let fixture = Fixture::new();
    let (here, elsewhere) = (fixture.open().await, fixture.open().await);
    let writer = write(&here, 2).await;
    let (near, far) = (read(&here, 0).await, read(&elsewhere, 0).await);

    drop(writer);

    let (near, far) = (rest(near).await, rest(far).await);
    assert_eq!(near, far);
    assert_eq!(near[..2], whole(2)[..2]);
    assert!(failure(&near).is(WRITER_LOST));
}

#[tokio::test]
async fn a_process_that_was_silent_too_long_is_taken_for_dead_and_kept_out() {
    let fixture = Fixture::new();
    let here = SqliteStreamLog::open(fixture.path()).await.unwrap();
    let elsewhere = fixture.open().await;
    let writer = write(&here, 2).await;
    let mut far = read(&elsewhere, 0).await;
    far.next().await.unwrap().unwrap();

    // To the other one, the lease of the first has lapsed.
    fixture.ahead.by(3_600);
    let far = rest(far).await;

    assert!(failure(&far).is(WRITER_LOST));
    let near = read(&here, 2).await;
    writer.append(text("too late")).await.unwrap();
    let near = rest(near).await;
    assert!(failure(&near).is(WRITER_LOST), "{near:?}");
    let refusal = writer.append(text("later still")).await.unwrap_err();
    assert_eq!(refusal.status(), Status::FailedPrecondition);
    assert_eq!(rest(read(&elsewhere, 2).await).await, far[1..]);
}

#[tokio::test]
async fn an_error_keeps_its_audience_in_the_file() {
    let fixture = Fixture::new();
    let writer = fixture.open().await.open(&key()).await.unwrap();

    let error = Error::internal("row 17").with_details("table t");
    writer.finish(Err(error)).await.unwrap();

    let error = failure(&rest(read(&fixture.open().await, 0).await).await);
    assert_eq!(error.to_wire(Exposure::Public).message, "internal error");
    assert_eq!(error.message(), "row 17");
}

#[tokio::test]
async fn a_finished_stream_expires_and_one_that_is_written_never_does() {
    let fixture = Fixture::new();
    let log = fixture
        .options()
        .keep_for(Duration::from_mins(1))
        .open()
        .await
        .unwrap();
    let open = StreamKey::new("ann", "open");
    let writer = log.open(&open).await.unwrap();
    write(&log, 2).await.finish(Ok(text("soup"))).await.unwrap();

    fixture.ahead.by(50);
    assert_eq!(rest(read(&log, 0).await).await.len(), 3);
    fixture.ahead.by(61);

    assert_eq!(refused(&log).await, Status::NotFound);
    assert_eq!(log.stop(&key()).await.unwrap_err().status(), Status::NotFound);
    let again = write(&log, 1).await;
    again.finish(Ok(text("soup"))).await.unwrap();
    assert_eq!(rest(read(&log, 0).await).await, whole(1));
    writer.append(text(1)).await.unwrap();
    writer.finish(Ok(text(()))).await.unwrap();
    assert!(log.read(&open, Position::START).await.is_ok());
}

// Many times: a log that reports an end before it has released the stream rarely fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_whose_end_was_read_expires_on_time() {
    let fixture = Fixture::new();
    let log = fixture.open().await;
    for round in 1..=200 {
        drop(write(&log, 0).await);
        rest(read(&log, 0).await).await;

        fixture.ahead.by(round * 3_600);
        assert_eq!(refused(&log).await, Status::NotFound, "round {round}");
    }
}

#[tokio::test]
async fn opening_sweeps_what_has_expired_out_of_the_file() {
    let fixture = Fixture::new();
    let log = fixture.open().await;
    for n in 0..20 {
        let writer = log.open(&StreamKey::new("ann", n.to_string())).await.unwrap();
        writer.append(text("secret leek")).await.unwrap();
        writer.finish(Ok(text("secret soup"))).await.unwrap();
    }

    fixture.ahead.by(3_600);
    write(&log, 1).await.finish(Ok(text(()))).await.unwrap();

    let db = rusqlite::Connection::open(fixture.path()).unwrap();
    let count = |table: &str| -> u64 {
        let query = format!("SELECT count(*) FROM {table}");
        db.query_row(&query, [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("stream"), count("batch")), (1, 1));
}

#[tokio::test]
async fn a_stop_reaches_the_writer_from_wherever_it_is_asked_for() {
    let fixture = Fixture::new();
    let (here, elsewhere) = (fixture.open().await, fixture.open().await);
    let writer = here.open(&key()).await.unwrap();
    let stopped = writer.stop_requested();

    elsewhere.stop(&key()).await.unwrap();
    stopped.cancelled().await;

    writer.append(text("last words")).await.unwrap();
    writer.finish(Err(Error::cancelled("stopped"))).await.unwrap();
    let seen = rest(read(&elsewhere, 0).await).await;
    assert_eq!(failure(&seen).status(), Status::Cancelled);
    assert_eq!(seen.len(), 2);
}

#[tokio::test]
async fn a_stream_that_cannot_be_written_ends_with_that_error_everywhere() {
    let fixture = Fixture::new();
    let patience = Duration::from_millis(50);
    let (here, elsewhere) = (fixture.options().busy_timeout(patience), fixture.open().await);
    let here = here.lease(Duration::from_millis(300)).open().await.unwrap();
    let writer = here.open(&key()).await.unwrap();
    let (near, far) = (read(&here, 0).await, read(&elsewhere, 0).await);

    let blocker = rusqlite::Connection::open(fixture.path()).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    writer.append(text(1)).await.unwrap();
    let near = rest(near).await;
    blocker.execute_batch("ROLLBACK").unwrap();

    assert_eq!(failure(&near).status(), Status::Unavailable, "{near:?}");
    assert!(!failure(&near).is(WRITER_LOST));
    let refusal = writer.finish(Ok(text("soup"))).await.unwrap_err();
    assert_eq!(refusal.status(), Status::Unavailable);
    let far = rest(far).await;
    assert_eq!(far.len(), 1, "what was not written is not there: {far:?}");
    assert_eq!(failure(&far).status(), Status::Unavailable);
}

#[tokio::test]
async fn a_stream_larger_than_may_be_ends_everywhere_after_what_was_kept() {
    let fixture = Fixture::new();
    let (here, elsewhere) = (fixture.options().max_stream_bytes(10_000), fixture.open().await);
    let here = here.open().await.unwrap();
    let writer = here.open(&key()).await.unwrap();
    let (near, far) = (read(&here, 0).await, read(&elsewhere, 0).await);
    let chunk = || text("x".repeat(3_000));

    for _ in 0..3 {
        writer.append(chunk()).await.unwrap();
    }
    let refused = writer.append(chunk()).await.unwrap_err();
    let again = writer.append(text(1)).await.unwrap_err();
    drop(writer);

    assert!(refused.message().contains("max_stream_bytes"), "{refused}");
    assert_eq!(again.status(), Status::ResourceExhausted);
    let (near, far) = (rest(near).await, rest(far).await);
    assert_eq!(near, far);
    assert_eq!(near.len(), 4);
    assert_eq!(failure(&near).status(), Status::ResourceExhausted);
    drop((here, elsewhere));
    assert_eq!(rest(read(&fixture.open().await, 0).await).await, far);
}

#[tokio::test]
async fn damage_to_a_stream_is_named_and_never_read_as_if_it_had_been_written() {
    for (change, what) in [
        (
            "UPDATE batch SET body = replace(body, '2', '7')",
            "the batch up to chunk",
        ),
        (
            "UPDATE batch SET body = body || char(10) || '9'",
            "the batch up to chunk",
        ),
        ("DELETE FROM batch WHERE last = 1", "chunk 1 is missing"),
        ("DELETE FROM batch WHERE last = 3", "is missing"),
        ("UPDATE stream SET body = '\"stew\"'", "the end"),
        ("UPDATE stream SET end = 'lost', body = NULL", "the end"),
    ] {
        let fixture = Fixture::new();
        let log = fixture.open().await;
        let writer = log.open(&key()).await.unwrap();
        for number in 1..=3_u64 {
            // Each in a separate batch.
            writer.append(text(number)).await.unwrap();
            eventually("the batch is written", async || fixture.batches() >= number).await;
        }
        writer.finish(Ok(text("soup"))).await.unwrap();
        drop(log);
        let database = rusqlite::Connection::open(fixture.path()).unwrap();
        database.execute_batch(change).unwrap();
        drop(database);

        let log = fixture.open().await;
        let entries: Vec<Result<Entry>> = read(&log, 0).await.collect().await;

        let error = entries.last().unwrap().as_ref().unwrap_err();
        assert_eq!(error.status(), Status::DataLoss, "{change}: {error}");
        assert!(error.message().contains(key().id()), "{change}: {error}");
        assert!(error.message().contains(what), "{change}: {error}");
    }
}

#[tokio::test]
async fn closing_ends_open_streams_and_leaves_one_complete_file() {
    let fixture = Fixture::new();
    let log = fixture.open().await;
    let open = write(&log, 2).await;
    let other = StreamKey::new("ann", "finished");
    let finished = log.open(&other).await.unwrap();
    finished.finish(Ok(text("soup"))).await.unwrap();

    log.close().await.unwrap();

    assert!(!fixture.folder.path().join("streams.db-wal").exists());
    assert!(open.append(text("late")).await.is_err());
    assert!(log.open(&StreamKey::new("ann", "late")).await.is_err());
    let copy = fixture.folder.path().join("copy.db");
    std::fs::copy(fixture.path(), &copy).unwrap();
    let copied = SqliteStreamLog::open(&copy).await.unwrap();
    let ended: Vec<Entry> = rest(read(&copied, 0).await).await;
    assert!(failure(&ended).is(WRITER_LOST), "{ended:?}");
    assert_eq!(ended.len(), 3);
    assert_eq!(
        copied.read(&other, Position::START).await.unwrap().count().await,
        1
    );
}

#[tokio::test]
async fn dropping_the_last_writer_or_reader_leaves_one_complete_file() {
    let fixture = Fixture::new();
    let log = fixture.open().await;
    let writer = write(&log, 2).await;
    let reader = read(&log, 0).await;
    drop(log);

    drop(reader);
    drop(writer);

    assert!(!fixture.folder.path().join("streams.db-wal").exists());
}

#[tokio::test]
async fn a_session_database_and_a_stream_database_are_not_confused() {
    let fixture = Fixture::new();
    drop(SqliteStore::open(fixture.path()).await.unwrap());
    let streams = fixture.folder.path().join("other.db");
    drop(SqliteStreamLog::open(&streams).await.unwrap());

    let log = SqliteStreamLog::open(fixture.path()).await.unwrap_err();
    let store = SqliteStore::open(&streams).await.unwrap_err();

    assert_eq!(log.status(), Status::FailedPrecondition, "{log}");
    assert_eq!(store.status(), Status::FailedPrecondition, "{store}");
}

/// Not a test: a process that writes until it is killed. Without a path it does nothing.
#[test]
fn the_other_process() {
    let Ok(path) = std::env::var(PATH) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let log = SqliteStreamLog::open(Path::new(&path)).await.unwrap();
        let writer = log.open(&key()).await.unwrap();
        println!("\nopened");
        for n in 1..100_000_u64 {
            writer.append(text(n)).await.unwrap();
            real_pause(Duration::from_millis(1), "a pace at which a kill falls midway").await;
        }
    });
}

#[tokio::test]
async fn a_killed_process_leaves_a_prefix_that_ends_with_an_error() {
    let fixture = Fixture::new();
    let log = fixture.open().await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "stream_log::the_other_process", "--nocapture"]);
    let mut child = command
        .env(PATH, fixture.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap() == "opened"));
    let mut follower = read(&log, 0).await;
    let mut seen = Vec::new();
    while seen.len() < 50 {
        seen.push(follower.next().await.unwrap().unwrap());
    }

    child.kill().unwrap();
    child.wait().unwrap();
    fixture.ahead.by(3_600);
    seen.extend(rest(follower).await);

    let chunks = seen.len() - 1;
    assert_eq!(seen[..chunks], whole(chunks as u64)[..chunks]);
    assert!(failure(&seen).is(WRITER_LOST));
}

/// Writes a stream of one chunk of so many bytes, and finishes it.
async fn fill(log: &SqliteStreamLog, key: &StreamKey, bytes: usize) -> Result<()> {
    let writer = log.open(key).await?;
    writer.append(JsonText::of(&"x".repeat(bytes))?).await?;
    writer.finish(Ok(JsonText::of("end")?)).await
}

#[tokio::test]
async fn the_oldest_finished_streams_make_room_for_their_owner_and_in_all() {
    let fixture = Fixture::new();
    let options = fixture.options().max_owner_bytes(100_000).max_bytes(250_000);
    let log = options.open().await.unwrap();
    let key = |owner: &str, id: &str| StreamKey::new(format!("{owner}/chef"), id).owned_by(owner);

    for (second, (owner, id)) in [
        ("alice", "1"),
        ("bob", "1"),
        ("alice", "2"),
        ("alice", "3"),
        ("carol", "1"),
        ("dora", "1"),
    ]
    .into_iter()
    .enumerate()
    {
        fixture.ahead.by(i64::try_from(second).unwrap());
        fill(&log, &key(owner, id), 45_000).await.unwrap();
    }
    fill(&log, &key("emil", "1"), 45_000).await.unwrap();

    let is_kept = async |owner, id| log.read(&key(owner, id), Position::START).await.is_ok();
    assert!(!is_kept("alice", "1").await, "its owner had no room");
    assert!(
        !is_kept("bob", "1").await,
        "it was the oldest when the log was full"
    );
    assert!(is_kept("dora", "1").await && is_kept("emil", "1").await);
}

#[tokio::test]
async fn a_full_log_ends_the_stream_that_needs_room_and_no_other() {
    let fixture = Fixture::new();
    let log = fixture.options().max_owner_bytes(100_000).open().await.unwrap();
    let elsewhere = fixture.options().max_owner_bytes(100_000).open().await.unwrap();
    let noisy = log
        .open(&StreamKey::new("a", "1").owned_by("alice"))
        .await
        .unwrap();
    let large = JsonText::of(&"x".repeat(60_000)).unwrap();
    noisy.append(large.clone()).await.unwrap();

    let second = StreamKey::new("b", "2").owned_by("alice");
    let writer = log.open(&second).await.unwrap();
    let mut reader = log.read(&second, Position::START).await.unwrap();
    writer.append(large.clone()).await.unwrap();
    let refused = writer.finish(Ok(large.clone())).await.unwrap_err();

    assert_eq!(refused.status(), Status::ResourceExhausted);
    assert!(refused.message().contains("max_owner_bytes"), "{refused}");
    let first = reader.next().await.unwrap().unwrap();
    assert_eq!(
        first.event,
        StreamEvent::Chunk(large.clone()),
        "it is still in memory"
    );
    let end = reader.next().await.unwrap().unwrap();
    assert!(matches!(end.event, StreamEvent::Failed(error) if error.status() == Status::ResourceExhausted));
    let read = elsewhere.read(&second, Position::START).await.unwrap();
    assert_eq!(read.count().await, 1, "others read that it was not kept");
    fill(&log, &StreamKey::new("a", "3").owned_by("bob"), 60_000)
        .await
        .unwrap();
    noisy.finish(Ok(JsonText::of("end").unwrap())).await.unwrap();
    fill(&log, &StreamKey::new("a", "4").owned_by("alice"), 60_000)
        .await
        .unwrap();
}

#[tokio::test]
async fn two_thousand_readers_of_a_silent_stream_of_another_process_do_not_read_the_file() {
    let fixture = Fixture::new();
    let (here, elsewhere) = (fixture.open().await, fixture.open().await);
    let silent = StreamKey::new("ann", "silent");
    let writer = elsewhere.open(&silent).await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..2_000 {
        readers.push(here.read(&silent, Position::START).await.unwrap());
    }
    // Each reads the file once, which takes about three polls, and then waits.
    let polls_left = Arc::new(AtomicUsize::new(2_000 * 10));
    let mut waiting: FuturesUnordered<_> = readers
        .into_iter()
        .map(|mut reader| {
            let polls_left = Arc::clone(&polls_left);
            poll_fn(move |context| {
                let left = polls_left.fetch_sub(1, Ordering::SeqCst);
                assert!(left > 0, "readers of a silent stream read the file again");
                reader.poll_next_unpin(context)
            })
        })
        .collect();

    // Another stream changes the file again and again, and its reader here learns of it.
    for number in 0..40 {
        let loud = StreamKey::new("ann", format!("loud {number}"));
        let writer = elsewhere.open(&loud).await.unwrap();
        let reader = here.read(&loud, Position::START).await.unwrap();
        let loud = async {
            writer.append(text(1)).await.unwrap();
            writer.finish(Ok(text("end"))).await.unwrap();
            assert_eq!(reader.count().await, 2);
        };
        tokio::select! {
            _ = waiting.next() => panic!("nothing was written to the silent stream"),
            () = loud => {}
        }
    }
    polls_left.store(usize::MAX, Ordering::SeqCst);
    writer.finish(Ok(text("end"))).await.unwrap();
    let ends: Vec<_> = waiting.collect().await;

    assert!(ends.iter().all(Option::is_some) && ends.len() == 2_000);
}

#[tokio::test]
async fn streams_that_expired_leave_no_text_although_none_is_opened_any_more() {
    const SECRET: &str = "canary-90ce21";
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteStreamLog::options(folder.path().join("streams.db"));
    let log = options.keep_for(Duration::from_millis(1)).open().await.unwrap();
    let writer = log.open(&StreamKey::new("ann", "dinner")).await.unwrap();
    writer.append(JsonText::of(&SECRET).unwrap()).await.unwrap();
    writer.finish(Ok(JsonText::of(&SECRET).unwrap())).await.unwrap();

    let is_anywhere = || {
        let files = std::fs::read_dir(folder.path()).unwrap();
        let contents = files.map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        contents.into_iter().any(|content| {
            content
                .windows(SECRET.len())
                .any(|window| window == SECRET.as_bytes())
        })
    };

    eventually("the text is gone", async || !is_anywhere()).await;
}
