//! Checks that a stream that grows too large ends and that other streams do not.

use std::sync::Arc;

use everturn_core::Status;
use everturn_core::stream_log::{JsonText, StreamEvent};

use super::super::ensure;
use super::{LogUnderTest, Verdict, expected, finish, list_promises, rest, same, write};

list_promises! {
    "a stream that grows too large ends with RESOURCE_EXHAUSTED after its kept events" => too_large,
    "a stream within its bound is kept whole" => within,
}

/// Returns a chunk of about one part of the size that is kept of a stream.
fn share(log: &LogUnderTest, part: usize) -> Result<JsonText, String> {
    let most = log.max_stream_bytes.ok_or("it is not known how much is kept")?;
    JsonText::of(&"x".repeat(most / part)).map_err(|error| error.to_string())
}

async fn too_large(log: Arc<LogUnderTest>) -> Verdict {
    let (writer, other) = (log.open("s").await?, log.open("other").await?);
    let early = log.read("s", 0).await?;
    let piece = share(&log, 8)?;

    let mut kept = 0;
    let refusal = loop {
        match writer.append(piece.clone()).await {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
        ensure!(kept < 20, "{kept} pieces of an eighth of the bound are kept");
    };
    ensure!(
        refusal.status() == Status::ResourceExhausted,
        "the writer received {refusal:?}"
    );
    let again = writer
        .append(share(&log, 1000)?)
        .await
        .err()
        .map(|error| error.status());
    ensure!(
        again == Some(Status::ResourceExhausted),
        "after that, a small chunk returned {again:?}: there would be a gap"
    );
    let finished = writer.finish(Ok(piece.clone())).await;
    ensure!(finished.is_err(), "a finished stream can be finished again");

    for reader in [early, log.read("s", 0).await?, log.read("s", 99).await?] {
        let entries = rest(reader).await?;
        let is_whole = entries.len() == kept + 1 || entries.len() == 1;
        ensure!(
            is_whole,
            "of {kept} chunks that were taken, {} are read",
            entries.len() - 1
        );
        match entries.last().map(|entry| &entry.event) {
            Some(StreamEvent::Failed(error)) if error.status() == Status::ResourceExhausted => {}
            end => return Err(format!("the readers received {end:?}")),
        }
    }
    write(&*other, 1..=3).await?;
    finish(other).await?;
    same(&rest(log.read("other", 0).await?).await?, &expected(0, 3))
}

async fn within(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    let piece = share(&log, 8)?;
    for number in 1..=6 {
        let taken = writer.append(piece.clone()).await;
        taken.map_err(|error| format!("eighth {number} of the bound was refused: {error}"))?;
    }
    finish(writer).await?;

    let read = rest(log.read("s", 0).await?).await?.len();
    ensure!(read == 7, "of 6 chunks and an end, {read} events are read");
    Ok(())
}
