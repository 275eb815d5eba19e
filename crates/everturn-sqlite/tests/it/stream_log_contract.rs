//! The stream log keeps every promise of the contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use everturn_agent::Clock;
use everturn_sqlite::SqliteStreamLog;
use everturn_testkit::certify::streams::{LogUnderTest, certify_stream_log};
use jiff::{SignedDuration, Timestamp};

const KEEP_FOR: Duration = Duration::from_mins(1);
const MAX_STREAM_BYTES: usize = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_keeps_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    let mut logs = 0;

    let certificate = certify_stream_log(|| {
        logs += 1;
        let path = folder.path().join(format!("{logs}.db"));
        async move {
            let ahead = Arc::new(AtomicI64::new(0));
            let clock = {
                let ahead = Arc::clone(&ahead);
                let ahead = move || SignedDuration::from_millis(ahead.load(Ordering::SeqCst));
                Clock::new(move || Timestamp::now() + ahead())
            };
            let options = SqliteStreamLog::options(path)
                .keep_for(KEEP_FOR)
                .max_stream_bytes(MAX_STREAM_BYTES)
                // Time that is made to pass must not make a living process look dead.
                .lease(Duration::from_hours(24))
                .clock(clock);
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
