//! Checks that readers follow a stream while it is written, without gaps or duplicates.

use std::sync::Arc;
use std::time::Duration;

use super::super::ensure;
use super::{
    LogUnderTest, SOON, Verdict, expected, finish, key, list_promises, next, read, rest, same, write,
};

list_promises! {
    "an event is read as soon as it is written" => at_once,
    "a reader waits for events that are not written yet" => waits,
    "a reader sees neither gap nor duplicate between existing and new events" => seamless,
    "readers that come and go get every event once" => come_and_go,
    "neither writers nor readers wait for a slow reader" => the_writer_never_waits,
}

async fn at_once(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    let mut reader = log.read("s", 0).await?;

    for number in 1..=10 {
        write(&*writer, [number]).await?;
        let entry = next(&mut reader).await?;
        ensure!(
            entry.as_ref() == expected(number - 1, number).first(),
            "chunk {number} is read as {entry:?}"
        );
    }
    finish(writer).await?;
    same(&rest(reader).await?, &expected(10, 10))
}

async fn waits(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    write(&*writer, 1..=3).await?;
    let (mut at_the_end, mut ahead) = (log.read("s", 3).await?, log.read("s", 5).await?);

    let moment = Duration::from_millis(20);
    let early = tokio::time::timeout(moment, next(&mut at_the_end)).await;
    ensure!(early.is_err(), "a reader that has seen all gets {early:?}");
    let early = tokio::time::timeout(moment, next(&mut ahead)).await;
    ensure!(early.is_err(), "a reader ahead of the writer gets {early:?}");

    write(&*writer, 4..=8).await?;
    finish(writer).await?;
    same(&rest(at_the_end).await?, &expected(3, 8))?;
    same(&rest(ahead).await?, &expected(5, 8))
}

/// Readers begin at every moment of a stream's life while it is written at full speed.
async fn seamless(log: Arc<LogUnderTest>) -> Verdict {
    const CHUNKS: u64 = 200;
    for round in 0..4_u64 {
        let id = format!("s{round}");
        let writer = log.open(&id).await?;
        let writing = async {
            for number in 1..=CHUNKS {
                write(&*writer, [number]).await?;
                if number % (round + 1) == 0 {
                    tokio::task::yield_now().await;
                }
            }
            finish(writer).await
        };
        let reading = (0..8_u64).map(|reader| {
            let (log, id) = (Arc::clone(&log), id.clone());
            async move {
                for _ in 0..reader * 16 {
                    tokio::task::yield_now().await;
                }
                let after = (reader % 3) * 7;
                let entries = read(&*log.log, &key(&id), after).await?;
                same(&rest(entries).await?, &expected(after, CHUNKS))
            }
        });
        let readers: Vec<_> = reading.map(tokio::spawn).collect();
        writing.await?;
        for reader in readers {
            reader
                .await
                .map_err(|error| format!("a reader panicked: {error}"))??;
        }
    }
    Ok(())
}

async fn come_and_go(log: Arc<LogUnderTest>) -> Verdict {
    const CHUNKS: u64 = 120;
    let writer = log.open("s").await?;
    let writing = async {
        for number in 1..=CHUNKS {
            write(&*writer, [number]).await?;
            tokio::task::yield_now().await;
        }
        finish(writer).await
    };
    let reading = async {
        let mut seen = Vec::new();
        loop {
            let after = seen.len() as u64;
            let mut entries = read(&*log.log, &key("s"), after).await?;
            // The reader leaves after a few events.
            for _ in 0..5 {
                match next(&mut entries).await? {
                    Some(entry) if entry.event.is_end() => {
                        seen.push(entry);
                        return same(&seen, &expected(0, CHUNKS));
                    }
                    Some(entry) => seen.push(entry),
                    None => return Err("the stream finished without an end entry".to_owned()),
                }
            }
        }
    };
    let (wrote, read) = futures::join!(writing, reading);
    wrote.and(read)
}

async fn the_writer_never_waits(log: Arc<LogUnderTest>) -> Verdict {
    const CHUNKS: u64 = 300;
    let writer = log.open("s").await?;
    let mut slow = log.read("s", 0).await?;
    write(&*writer, [1]).await?;
    next(&mut slow).await?;
    let quick = log.read("s", 0).await?;

    let writing = async {
        write(&*writer, 2..=CHUNKS).await?;
        finish(writer).await
    };
    let written = tokio::time::timeout(SOON, writing).await;
    written.map_err(|_| "the writer waits for a reader that does not read".to_owned())??;

    same(&rest(quick).await?, &expected(0, CHUNKS))?;
    same(&rest(slow).await?, &expected(1, CHUNKS))
}
