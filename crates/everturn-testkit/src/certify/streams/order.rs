//! That events come as they were written, wherever a reader starts.

use std::sync::Arc;

use super::{LogUnderTest, Verdict, expected, finish, list_promises, rest, same, write};

list_promises! {
    "events come in order, at their positions, as the very text" => in_order,
    "a reader starts after any event" => from_anywhere,
    "a reader that has seen more than there is gets the end" => beyond_the_end,
    "a stream without chunks has an end" => empty,
    "a stream is read as often as one likes" => again_and_again,
}

const CHUNKS: u64 = 40;

/// A log with a finished stream.
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
