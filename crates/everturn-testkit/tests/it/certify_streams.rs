//! The kit passes a correct stream log and detects every defect.

use std::time::Duration;

use everturn_core::stream_log::{MemoryStreamLog, StreamLog};
use everturn_testkit::certify::streams::stream_defects::{DefectiveLog, StreamDefect};
use everturn_testkit::certify::streams::{LogUnderTest, certify_stream_log};

const KEEP_FOR: Duration = Duration::from_mins(1);
const MAX_STREAM_BYTES: usize = 50_000;

fn memory() -> MemoryStreamLog {
    let options = MemoryStreamLog::options().keep_for(KEEP_FOR);
    options.max_stream_bytes(MAX_STREAM_BYTES).build()
}

/// A log that uses tokio's time.
fn under_test(log: impl StreamLog + Clone) -> LogUnderTest {
    LogUnderTest::new(log.clone())
        .elsewhere(log)
        .keeping_for(KEEP_FOR, |time| Box::pin(tokio::time::advance(time)))
        .bounded_by(MAX_STREAM_BYTES)
}

#[tokio::test(start_paused = true)]
async fn the_log_in_memory_keeps_every_promise() {
    let certificate = certify_stream_log(|| async { under_test(memory()) }).await;

    certificate.assert_kept();
    assert_eq!(certificate.findings().len(), 31);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_in_memory_keeps_its_promises_between_threads() {
    let certificate = certify_stream_log(|| async {
        let log = memory();
        LogUnderTest::new(log.clone())
            .elsewhere(log)
            .bounded_by(MAX_STREAM_BYTES)
    })
    .await;

    certificate.assert_kept();
}

#[tokio::test(start_paused = true)]
async fn every_planted_defect_is_caught() {
    for defect in StreamDefect::ALL {
        let log = || async { under_test(DefectiveLog::new(defect, KEEP_FOR, MAX_STREAM_BYTES)) };

        let certificate = certify_stream_log(log).await;

        let caught = certificate.broken().count();
        assert!(caught > 0, "{defect:?} was not caught:\n{certificate}");
    }
}
