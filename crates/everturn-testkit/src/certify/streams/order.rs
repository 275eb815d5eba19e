//! Checks that events are read in the order of writing from every position.

use std::sync::Arc;

use super::{LogUnderTest, Verdict, expected, finish, list_promises, rest, same, write};

list_promises! {
    "events are read in order, at their positions, with identical text" => in_order,
    "a reader starts after any event" => from_anywhere,
    "a reader with a position past the end gets the end" => beyond_the_end,
    "a stream without chunks has an end" => empty,
    "a stream can be read any number of times" => again_and_again,
}

const CHUNKS: u64 = 40;

/// Writes a finished stream into the log.
async fn filled(log: &LogUnderTest, chunks: u64) -> Verdict {
    let writer = log.open("s").await?;
    write(&*writer, 1..=chunks).await?;
    finish(writer).await
}

async fn in_order(log: Arc<LogUnderTest>) -> Verdict {
    filled(&log, CHUNKS).await?;

    same(&rest(log.read("s", 0).await?).await?, &expected(0, CHUNKS))
}

async fn from_anywhere(log: Arc<LogUnderTest>) -> Verdict {
    filled(&log, CHUNKS).await?;

    for after in 0..=CHUNKS {
        same(
            &rest(log.read("s", after).await?).await?,
            &expected(after, CHUNKS),
        )
        .map_err(|problem| format!("after {after}, {problem}"))?;
    }
    Ok(())
}

async fn beyond_the_end(log: Arc<LogUnderTest>) -> Verdict {
    filled(&log, CHUNKS).await?;

    for after in [CHUNKS + 1, CHUNKS + 9, u64::MAX] {
        same(
            &rest(log.read("s", after).await?).await?,
            &expected(CHUNKS, CHUNKS),
        )
        .map_err(|problem| format!("after {after}, {problem}"))?;
    }
    Ok(())
}

async fn empty(log: Arc<LogUnderTest>) -> Verdict {
    filled(&log, 0).await?;

    same(&rest(log.read("s", 0).await?).await?, &expected(0, 0))
}

async fn again_and_again(log: Arc<LogUnderTest>) -> Verdict {
    filled(&log, CHUNKS).await?;

    let (one, other) = (log.read("s", 0).await?, log.read("s", 0).await?);
    let (one, other) = (rest(one).await?, rest(other).await?);
    same(&one, &expected(0, CHUNKS))?;
    same(&other, &expected(0, CHUNKS))
}
