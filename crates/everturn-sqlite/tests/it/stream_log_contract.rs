//! The stream log keeps every promise of the contract.

use everturn_sqlite::SqliteStreamLog;
use everturn_testkit::certify::streams::certify_stream_log;

use crate::support::log_under_test::{Ahead, KEEP_FOR, LEASE, MAX_STREAM_BYTES};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_keeps_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    let mut logs = 0;

    let certificate = certify_stream_log(|| {
        logs += 1;
        let ahead = Ahead::default();
        let options = SqliteStreamLog::options(folder.path().join(format!("{logs}.db")))
            .keep_for(KEEP_FOR)
            .max_stream_bytes(MAX_STREAM_BYTES)
            .lease(LEASE)
            .clock(ahead.clock());
        async move {
            let here = options.clone().open().await.unwrap();
            ahead.log(here, options.open().await.unwrap())
        }
    })
    .await;

    certificate.assert_kept();
}
