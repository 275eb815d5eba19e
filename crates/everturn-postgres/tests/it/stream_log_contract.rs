//! The stream log keeps every promise of the contract, directly and through a pooler.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use everturn_agent::Clock;
use everturn_postgres::PostgresStreamLog;
use everturn_testkit::certify::streams::{LogUnderTest, certify_stream_log};
use jiff::{SignedDuration, Timestamp};

use crate::support::{Way, fresh_schema};

const KEEP_FOR: Duration = Duration::from_mins(1);
const MAX_STREAM_BYTES: usize = 100_000;

async fn keeps_every_promise(way: Way) {
    let Some(url) = way.url() else {
        return;
    };

    let certificate = certify_stream_log(|| {
        let ahead = Arc::new(AtomicI64::new(0));
        let clock = {
            let ahead = Arc::clone(&ahead);
            let ahead = move || SignedDuration::from_millis(ahead.load(Ordering::SeqCst));
            Clock::new(move || Timestamp::now() + ahead())
        };
        let options = PostgresStreamLog::options(&url)
            .schema(fresh_schema())
            .connections(4)
            .keep_for(KEEP_FOR)
            .max_stream_bytes(MAX_STREAM_BYTES)
            // Time that is made to pass must not make a living process look dead.
            .lease(Duration::from_hours(24))
            .clock(clock);
        async move {
            let here = options.clone().open().await.unwrap();
            let elsewhere = options.open().await.unwrap();
            LogUnderTest::new(here)
                .elsewhere(elsewhere)
                .keeping_for(KEEP_FOR, move |time| {
                    ahead.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
                    Box::pin(std::future::ready(()))
                })
                .bounded_by(MAX_STREAM_BYTES)
        }
    })
    .await;

    certificate.assert_kept();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_keeps_every_promise() {
    keeps_every_promise(Way::Direct).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_keeps_every_promise_through_a_pooler() {
    keeps_every_promise(Way::Pooled).await;
}
