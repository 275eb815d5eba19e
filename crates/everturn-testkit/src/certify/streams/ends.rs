//! Checks that every stream ends once and that every reader receives the end.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::stream_log::{Entry, StreamEvent, WRITER_LOST};
use everturn_core::{Error, Exposure, Status};

use super::super::ensure;
use super::{LogUnderTest, SOON, Verdict, expected, finish, key, list_promises, next, rest, same, write};

list_promises! {
    "an error ends a stream and keeps its status, details and audience" => errors_are_kept,
    "a writer dropped without finishing ends its stream with an error" => a_lost_writer,
    "a writer dropped before its first event leaves a stream with an end" => a_writer_that_goes_at_once,
    "a stop reaches the writer and does not end the stream" => a_stop_is_passed_on,
    "a stop of a finished stream changes nothing" => a_late_stop,
}

fn failure(entries: &[Entry]) -> Result<&Error, String> {
    match entries.last().map(|entry| &entry.event) {
        Some(StreamEvent::Failed(error)) => Ok(error),
        other => Err(format!("the stream should have failed, and ended with {other:?}")),
    }
}

async fn errors_are_kept(log: Arc<LogUnderTest>) -> Verdict {
    let private = Error::failed_precondition("row 17 is locked").with_details("table t");
    let public = Error::not_found("row 17").with_public_message("no such recipe");
    for (id, error) in [("private", &private), ("public", &public)] {
        let writer = log.open(id).await?;
        write(&*writer, [1]).await?;
        let finished = writer.finish(Err(error.clone())).await;
        finished.map_err(|error| format!("the stream cannot be finished: {error}"))?;
    }

    let entries = rest(log.read("private", 1).await?).await?;
    let error = failure(&entries)?;
    ensure!(
        error.status() == private.status(),
        "the status has become {}",
        error.status()
    );
    ensure!(
        error.details() == private.details(),
        "the details have become {:?}",
        error.details()
    );
    ensure!(
        error.message() == private.message(),
        "the message has become {:?}",
        error.message()
    );
    let shown = error.to_wire(Exposure::Public).message;
    ensure!(
        !shown.contains("row 17"),
        "clients are shown the private text {shown:?}"
    );
    let entries = rest(log.read("public", 0).await?).await?;
    let shown = failure(&entries)?.to_wire(Exposure::Public).message;
    ensure!(
        shown == "no such recipe",
        "clients are shown {shown:?} and not the public text"
    );
    Ok(())
}

async fn a_lost_writer(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    write(&*writer, 1..=3).await?;
    let mut early = log.read("s", 0).await?;
    next(&mut early).await?;

    drop(writer);

    for (reader, after) in [
        (early, 1),
        (log.read("s", 0).await?, 0),
        (log.read("s", 9).await?, 3),
    ] {
        let entries = rest(reader).await?;
        let error = failure(&entries)?;
        ensure!(
            error.is(WRITER_LOST) && error.status() == Status::Unavailable,
            "the stream ended with {error:?}"
        );
        let chunks = &entries[..entries.len() - 1];
        same(chunks, &expected(after, 3)[..chunks.len()])?;
        ensure!(
            chunks.len() as u64 == 3 - after && entries[chunks.len()].position.number() == 4,
            "after {after} there are {} chunks, and the end is at {}",
            chunks.len(),
            entries[chunks.len()].position
        );
    }
    Ok(())
}

async fn a_writer_that_goes_at_once(log: Arc<LogUnderTest>) -> Verdict {
    drop(log.open("s").await?);

    let entries = rest(log.read("s", 0).await?).await?;
    ensure!(
        failure(&entries)?.is(WRITER_LOST),
        "the stream ended with {entries:?}"
    );
    let again = log.log.open(&key("s")).await.err().map(|error| error.status());
    ensure!(
        again == Some(Status::AlreadyExists),
        "the stream can be opened again: {again:?}"
    );
    Ok(())
}

async fn a_stop_is_passed_on(log: Arc<LogUnderTest>) -> Verdict {
    let (writer, other) = (log.open("s").await?, log.open("other").await?);
    let (stop, others) = (writer.stop_requested(), other.stop_requested());
    ensure!(
        !stop.is_cancelled(),
        "the writer received a stop that was not requested"
    );

    let asked = log.log.stop(&key("s")).await;
    asked.map_err(|error| format!("the stream cannot be stopped: {error}"))?;

    let stopped = tokio::time::timeout(SOON, stop.cancelled()).await;
    ensure!(stopped.is_ok(), "the stop does not reach the writer");
    ensure!(!others.is_cancelled(), "the stop reached another writer");
    write(&*writer, 1..=2).await?;
    let mut reader = log.read("s", 2).await?;
    let early = tokio::time::timeout(Duration::from_millis(20), next(&mut reader)).await;
    ensure!(early.is_err(), "the stop itself ended the stream: {early:?}");
    finish(writer).await?;
    same(&rest(reader).await?, &expected(2, 2))
}

async fn a_late_stop(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    write(&*writer, 1..=2).await?;
    finish(writer).await?;

    let asked = log.log.stop(&key("s")).await;
    asked.map_err(|error| format!("stopping a finished stream failed: {error}"))?;

    same(&rest(log.read("s", 0).await?).await?, &expected(0, 2))
}
