//! The promises of the in-memory stream log.

use std::time::Duration;

use everturn_core::stream_log::{
    Entry, JsonText, MemoryStreamLog, Position, StreamEvent, StreamKey, StreamLog, WRITER_LOST,
};
use everturn_core::{Error, Exposure, Result, Status};
use futures::{FutureExt, StreamExt};

fn key() -> StreamKey {
    StreamKey::new("ann", "dinner")
}

fn text(value: impl serde::Serialize) -> JsonText {
    JsonText::of(&value).unwrap()
}

async fn read_all(log: &MemoryStreamLog, after: u64) -> Vec<Entry> {
    let entries = log.read(&key(), Position::new(after)).await.unwrap();
    entries.map(Result::unwrap).collect().await
}

fn entry(position: u64, event: StreamEvent) -> Entry {
    Entry {
        position: Position::new(position),
        event,
    }
}

/// The error that a stream ended with, after this many events in all.
fn failure(entries: &[Entry], count: usize) -> Error {
    assert_eq!(entries.len(), count, "{entries:?}");
    match &entries.last().unwrap().event {
        StreamEvent::Failed(error) => error.clone(),
        other => panic!("expected an error, got {other:?}"),
    }
}

#[tokio::test]
async fn every_reader_gets_the_same_events_from_wherever_it_starts() {
    let log = MemoryStreamLog::new();
    let writer = log.open(&key()).await.unwrap();
    let early = log.read(&key(), Position::START).await.unwrap();
    for n in 1..=3 {
        assert_eq!(writer.append(text(n)).await.unwrap(), Position::new(n));
    }
    let late = log.read(&key(), Position::START).await.unwrap();

    writer.finish(Ok(text("soup"))).await.unwrap();

    let all: Vec<Entry> = early.map(Result::unwrap).collect().await;
    let expected = [
        entry(1, StreamEvent::Chunk(text(1))),
        entry(2, StreamEvent::Chunk(text(2))),
        entry(3, StreamEvent::Chunk(text(3))),
        entry(4, StreamEvent::Done(text("soup"))),
    ];
    assert_eq!(all, expected);
    assert_eq!(late.map(Result::unwrap).collect::<Vec<_>>().await, expected);
    for after in 0..=3 {
        assert_eq!(
            read_all(&log, after).await,
            expected[usize::try_from(after).unwrap()..]
        );
    }
}

#[tokio::test]
async fn a_reader_that_claims_to_have_seen_more_gets_the_end() {
    let log = MemoryStreamLog::new();
    let writer = log.open(&key()).await.unwrap();
    writer.append(text(1)).await.unwrap();
    writer.finish(Ok(text("soup"))).await.unwrap();

    for after in [2, 9, u64::MAX] {
        assert_eq!(
            read_all(&log, after).await,
            [entry(2, StreamEvent::Done(text("soup")))]
        );
    }
}

#[tokio::test]
async fn a_reader_waits_for_what_has_not_been_written() {
    let log = MemoryStreamLog::new();
    let writer = log.open(&key()).await.unwrap();
    let mut reader = log.read(&key(), Position::START).await.unwrap();
    assert!(reader.next().now_or_never().is_none());

    writer.append(text(1)).await.unwrap();

    assert_eq!(
        reader.next().await.unwrap().unwrap(),
        entry(1, StreamEvent::Chunk(text(1)))
    );
    assert!(reader.next().now_or_never().is_none());
}

#[tokio::test]
async fn a_key_is_opened_once_and_unknown_elsewhere() {
    let log = MemoryStreamLog::new();
    let _writer = log.open(&key()).await.unwrap();

    let again = log.open(&key()).await.unwrap_err();
    let foreign = log
        .read(&StreamKey::new("bob", "dinner"), Position::START)
        .await
        .err()
        .unwrap();
    let missing = log
        .read(&StreamKey::new("ann", "lunch"), Position::START)
        .await
        .err()
        .unwrap();

    assert_eq!(again.status(), Status::AlreadyExists);
    assert_eq!(foreign.status(), Status::NotFound);
    assert_eq!(foreign.message(), missing.message());
    assert!(log.open(&StreamKey::new("bob", "dinner")).await.is_ok());
}

#[tokio::test]
async fn a_writer_that_is_dropped_ends_its_stream_with_an_error() {
    let log = MemoryStreamLog::new();
    let writer = log.open(&key()).await.unwrap();
    writer.append(text(1)).await.unwrap();

    drop(writer);

    let error = failure(&read_all(&log, 0).await, 2);
    assert!(error.is(WRITER_LOST), "{error}");
    assert_eq!(error.status(), Status::Unavailable);
}

#[tokio::test]
async fn an_error_keeps_its_public_text_or_its_private_text_as_private() {
    let log = MemoryStreamLog::new();
    let writer = log.open(&key()).await.unwrap();

    writer
        .finish(Err(Error::internal("row 17").with_details("table t")))
        .await
        .unwrap();

    let error = failure(&read_all(&log, 0).await, 1);
    assert_eq!(error.to_wire(Exposure::Public).message, "internal error");
    assert_eq!(error.message(), "row 17");
}

#[tokio::test(start_paused = true)]
async fn a_finished_stream_expires_and_an_open_one_never_does() {
    let log = MemoryStreamLog::options()
        .keep_for(Duration::from_mins(1))
        .build();
    let open = StreamKey::new("ann", "open");
    let writer = log.open(&open).await.unwrap();
    log.open(&key()).await.unwrap().finish(Ok(text(1))).await.unwrap();

    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(read_all(&log, 0).await.len(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;

    let expired = log.read(&key(), Position::START).await.err().unwrap();
    assert_eq!(expired.status(), Status::NotFound);
    assert_eq!(log.stop(&key()).await.unwrap_err().status(), Status::NotFound);
    assert!(log.open(&key()).await.is_ok(), "the key is free again");
    assert!(log.read(&open, Position::START).await.is_ok());
    drop(writer);
}

#[tokio::test(start_paused = true)]
async fn opening_a_stream_sweeps_expired_ones() {
    let log = MemoryStreamLog::options()
        .keep_for(Duration::from_mins(1))
        .build();
    for n in 0..10 {
        let writer = log.open(&StreamKey::new("ann", n.to_string())).await.unwrap();
        writer.finish(Ok(text(n))).await.unwrap();
    }

    tokio::time::advance(Duration::from_secs(61)).await;
    let _writer = log.open(&key()).await.unwrap();

    assert!(format!("{log:?}").contains("streams: 1,"), "{log:?}");
}

#[tokio::test]
async fn a_full_log_lets_finished_streams_go_before_it_refuses_a_growing_one() {
    let log = MemoryStreamLog::options().max_bytes(10_000).build();
    let finished = StreamKey::new("ann", "finished");
    let writer = log.open(&finished).await.unwrap();
    writer.append(text("x".repeat(4_000))).await.unwrap();
    writer.finish(Ok(text(()))).await.unwrap();

    let writer = log.open(&key()).await.unwrap();
    writer.append(text("x".repeat(7_000))).await.unwrap();
    let refused = writer.append(text("x".repeat(7_000))).await.unwrap_err();
    let after = writer.append(text("small")).await.unwrap_err();

    assert_eq!(
        log.read(&finished, Position::START).await.err().unwrap().status(),
        Status::NotFound
    );
    assert_eq!(refused.status(), Status::ResourceExhausted);
    assert_eq!(
        after.status(),
        Status::ResourceExhausted,
        "a gap is never written"
    );
    let error = failure(&read_all(&log, 0).await, 2);
    assert_eq!(error.status(), Status::ResourceExhausted);
}

#[tokio::test]
async fn a_stream_larger_than_may_be_ends_and_leaves_the_others_alone() {
    let log = MemoryStreamLog::options().max_stream_bytes(10_000).build();
    let writer = log.open(&key()).await.unwrap();
    let other = log.open(&StreamKey::new("ann", "other")).await.unwrap();
    writer.append(text("x".repeat(7_000))).await.unwrap();

    let refused = writer.append(text("x".repeat(7_000))).await.unwrap_err();

    assert_eq!(refused.status(), Status::ResourceExhausted);
    assert!(refused.message().contains("max_stream_bytes"), "{refused}");
    let error = failure(&read_all(&log, 0).await, 2);
    assert_eq!(error.status(), Status::ResourceExhausted);
    other.append(text("x".repeat(7_000))).await.unwrap();
    other.finish(Ok(text(()))).await.unwrap();
    assert!(writer.finish(Ok(text(()))).await.is_err());
}

#[tokio::test]
async fn a_stop_reaches_the_writer_and_does_not_end_the_stream() {
    let log = MemoryStreamLog::new();
    let writer = log.open(&key()).await.unwrap();
    let stopped = writer.stop_requested();
    assert!(!stopped.is_cancelled());

    log.stop(&key()).await.unwrap();

    assert!(stopped.is_cancelled());
    writer.append(text("last words")).await.unwrap();
    writer.finish(Err(Error::cancelled("stopped"))).await.unwrap();
    log.stop(&key()).await.unwrap();
    assert_eq!(failure(&read_all(&log, 0).await, 2).status(), Status::Cancelled);
}

#[tokio::test]
async fn a_log_works_behind_a_trait_object_and_from_many_tasks() {
    let log: std::sync::Arc<dyn StreamLog> = std::sync::Arc::new(MemoryStreamLog::new());
    let writer = log.open(&key()).await.unwrap();
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let log = std::sync::Arc::clone(&log);
            tokio::spawn(async move {
                let entries = log.read(&key(), Position::START).await.unwrap();
                entries
                    .map(|entry| entry.unwrap().position.number())
                    .collect::<Vec<_>>()
                    .await
            })
        })
        .collect();

    for n in 0..500 {
        writer.append(text(n)).await.unwrap();
        if n % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    writer.finish(Ok(text(()))).await.unwrap();

    for reader in readers {
        assert_eq!(reader.await.unwrap(), (1..=501).collect::<Vec<_>>());
    }
}

/// Writes and finishes a stream of about that many bytes.
async fn fill(log: &MemoryStreamLog, key: &StreamKey, bytes: usize) {
    let writer = log.open(key).await.unwrap();
    writer.append(text("x".repeat(bytes))).await.unwrap();
    writer.finish(Ok(text("end"))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_owner_at_its_limit_loses_only_its_own_oldest_streams() {
    let log = MemoryStreamLog::options().max_owner_bytes(10_000).build();
    let key = |owner: &str, id: &str| StreamKey::new(format!("{owner}/chef"), id).owned_by(owner);
    fill(&log, &key("bob", "first"), 4_000).await;

    for id in ["one", "two", "three"] {
        fill(&log, &key("alice", id), 4_000).await;
        tokio::time::advance(Duration::from_millis(1)).await;
    }

    assert!(log.read(&key("alice", "one"), Position::START).await.is_err());
    for kept in [key("alice", "three"), key("bob", "first")] {
        assert!(log.read(&kept, Position::START).await.is_ok(), "{kept:?}");
    }
}

#[tokio::test]
async fn streams_that_are_being_written_do_not_take_the_room_of_other_owners() {
    let log = MemoryStreamLog::options().max_owner_bytes(10_000).build();
    let noisy = log
        .open(&StreamKey::new("a", "1").owned_by("alice"))
        .await
        .unwrap();
    let large = text("x".repeat(6_000));
    noisy.append(large.clone()).await.unwrap();
    let second = log
        .open(&StreamKey::new("b", "2").owned_by("alice"))
        .await
        .unwrap();

    let refused = second.append(large.clone()).await.unwrap_err();
    let other = log.open(&StreamKey::new("a", "3").owned_by("bob")).await.unwrap();

    assert_eq!(refused.status(), Status::ResourceExhausted);
    assert!(refused.message().contains("max_owner_bytes"), "{refused}");
    other.append(large.clone()).await.unwrap();
    drop((noisy, second));
    fill(&log, &StreamKey::new("a", "4").owned_by("alice"), 6_000).await;
}
