//! Checks that the promises hold between two handles, as between processes.

use std::sync::Arc;

use everturn_core::Status;
use everturn_core::stream_log::{StreamEvent, StreamLog, WRITER_LOST};

use super::super::ensure;
use super::{LogUnderTest, SOON, Verdict, expected, finish, key, list_promises, read, rest, same, write};

list_promises! {
    "a stream is followed from another process without gap or duplicate" => followed,
    "a key is opened once across processes" => once,
    "a stop from another process reaches the writer" => stopped,
    "another process sees the end of a stream whose writer was dropped" => lost,
}

impl LogUnderTest {
    fn other(&self) -> Result<&Arc<dyn StreamLog>, String> {
        self.elsewhere
            .as_ref()
            .ok_or_else(|| "there is no other process".to_owned())
    }
}

async fn followed(log: Arc<LogUnderTest>) -> Verdict {
    const CHUNKS: u64 = 300;
    let writer = log.open("s").await?;
    let reading = (0..6_u64).map(|reader| {
        let log = Arc::clone(&log);
        tokio::spawn(async move {
            for _ in 0..reader * 40 {
                tokio::task::yield_now().await;
            }
            let after = reader * 3;
            let entries = read(&**log.other()?, &key("s"), after).await?;
            same(&rest(entries).await?, &expected(after, CHUNKS))
        })
    });
    let readers: Vec<_> = reading.collect();
    for number in 1..=CHUNKS {
        write(&*writer, [number]).await?;
        tokio::task::yield_now().await;
    }
    finish(writer).await?;
    for reader in readers {
        reader
            .await
            .map_err(|error| format!("a reader panicked: {error}"))??;
    }
    same(
        &rest(read(&**log.other()?, &key("s"), 0).await?).await?,
        &expected(0, CHUNKS),
    )
}

async fn once(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    for _ in 0..2 {
        let again = log
            .other()?
            .open(&key("s"))
            .await
            .err()
            .map(|error| error.status());
        ensure!(
            again == Some(Status::AlreadyExists),
            "elsewhere, opening a used key returned {again:?}"
        );
    }
    finish(writer).await
}

async fn stopped(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    let stop = writer.stop_requested();

    let asked = log.other()?.stop(&key("s")).await;
    asked.map_err(|error| format!("the stream cannot be stopped from elsewhere: {error}"))?;

    let stopped = tokio::time::timeout(SOON, stop.cancelled()).await;
    ensure!(stopped.is_ok(), "a stop from elsewhere does not reach the writer");
    write(&*writer, 1..=2).await?;
    finish(writer).await?;
    same(
        &rest(read(&**log.other()?, &key("s"), 0).await?).await?,
        &expected(0, 2),
    )
}

async fn lost(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    write(&*writer, 1..=2).await?;
    let reader = read(&**log.other()?, &key("s"), 0).await?;

    drop(writer);

    let entries = rest(reader).await?;
    let is_lost =
        matches!(&entries[entries.len() - 1].event, StreamEvent::Failed(error) if error.is(WRITER_LOST));
    ensure!(
        is_lost && entries.len() == 3,
        "elsewhere, the stream is {entries:?}"
    );
    Ok(())
}
