//! Checks that finished streams, and no others, expire in time.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::Status;
use everturn_core::stream_log::Position;

use super::super::ensure;
use super::{Expiry, LogUnderTest, Verdict, expected, finish, key, list_promises, rest, same, write};

list_promises! {
    "a finished stream is kept for its time and not longer" => kept_for_its_time,
    "a stream whose writer was lost expires" => a_lost_one_expires,
    "a stream that is written never expires" => a_written_one_never_does,
    "the key of an expired stream is free, and its events do not come back" => the_key_is_free,
}

impl LogUnderTest {
    fn expiry(&self) -> Result<&Expiry, String> {
        self.expiry
            .as_ref()
            .ok_or_else(|| "time cannot be made to pass".to_owned())
    }

    /// Lets about that percentage of the retention period pass.
    async fn pass(&self, percent: u32) -> Verdict {
        let Expiry { keep_for, pass } = self.expiry()?;
        pass(*keep_for * percent / 100 + Duration::from_millis(1)).await;
        Ok(())
    }

    async fn is_gone(&self, id: &str) -> Verdict {
        let read = self.log.read(&key(id), Position::START).await;
        let status = read.err().map(|error| error.status());
        ensure!(
            status == Some(Status::NotFound),
            "stream {id:?} is still read: {status:?}"
        );
        let stopped = self.log.stop(&key(id)).await;
        let status = stopped.err().map(|error| error.status());
        ensure!(
            status == Some(Status::NotFound),
            "stream {id:?} is still stopped: {status:?}"
        );
        Ok(())
    }
}

async fn kept_for_its_time(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    write(&*writer, 1..=3).await?;
    finish(writer).await?;

    log.pass(80).await?;
    same(&rest(log.read("s", 0).await?).await?, &expected(0, 3))?;
    log.pass(30).await?;
    log.is_gone("s").await
}

async fn a_lost_one_expires(log: Arc<LogUnderTest>) -> Verdict {
    drop(log.open("s").await?);
    rest(log.read("s", 0).await?).await?;

    log.pass(110).await?;
    log.is_gone("s").await
}

async fn a_written_one_never_does(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    write(&*writer, 1..=3).await?;

    log.pass(300).await?;
    // Logs sweep expired streams when a stream is opened.
    finish(log.open("other").await?).await?;
    write(&*writer, 4..=6).await?;
    finish(writer).await?;
    same(&rest(log.read("s", 0).await?).await?, &expected(0, 6))
}

async fn the_key_is_free(log: Arc<LogUnderTest>) -> Verdict {
    let writer = log.open("s").await?;
    write(&*writer, 1..=9).await?;
    finish(writer).await?;

    log.pass(110).await?;
    let writer = log.open("s").await?;
    write(&*writer, 1..=2).await?;
    finish(writer).await?;

    same(&rest(log.read("s", 0).await?).await?, &expected(0, 2))
}
