//! The stream log keeps every promise of the contract, directly and through a pooler.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use everturn_agent::Clock;
use everturn_core::stream_log::{JsonText, Position, StreamKey, StreamLog};
use everturn_postgres::PostgresStreamLog;
use everturn_testkit::certify::streams::certify_stream_log;
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};

use crate::log_under_test::{Ahead, KEEP_FOR, LEASE, MAX_STREAM_BYTES};
use crate::support::{Way, new_schema, sql};

async fn keeps_every_promise(way: Way) {
    let Some(url) = way.url() else {
        return;
    };

    let certificate = certify_stream_log(|| {
        let ahead = Ahead::default();
        let options = PostgresStreamLog::options(&url)
            .schema(new_schema())
            .connections(4)
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_keeps_every_promise() {
    keeps_every_promise(Way::Direct).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_keeps_every_promise_through_a_pooler() {
    keeps_every_promise(Way::Pooled).await;
}

/// Writes a stream of ten chunks, and ends it.
async fn write(log: &PostgresStreamLog, id: &str) {
    let writer = log.open(&StreamKey::new("ann", id)).await.unwrap();
    for number in 0..10 {
        writer.append(JsonText::of(&number).unwrap()).await.unwrap();
    }
    writer.finish(Ok(JsonText::of(&"over").unwrap())).await.unwrap();
}

#[tokio::test]
async fn chunks_of_one_age_are_dropped_as_a_whole_partition() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let (schema, ahead) = (new_schema(), Arc::new(AtomicI64::new(0)));
    let clock = {
        let ahead = Arc::clone(&ahead);
        Clock::new(move || Timestamp::now() + SignedDuration::from_secs(ahead.load(Ordering::SeqCst)))
    };
    // A new handle each time, because one looks for old partitions only now and then.
    let open = || {
        let options = PostgresStreamLog::options(&url).schema(&schema).connections(2);
        options.keep_for(KEEP_FOR).clock(clock.clone()).open()
    };
    let count = format!("SELECT count(*) FROM \"{schema}\".chunk");
    for id in ["one", "two"] {
        write(&open().await.unwrap(), id).await;
    }
    assert_ne!(sql(&url, &count).await.unwrap(), "0");

    ahead.fetch_add(1_000, Ordering::SeqCst);
    let log = open().await.unwrap();
    write(&log, "three").await;

    let left = format!("SELECT count(DISTINCT stream) FROM \"{schema}\".chunk");
    assert_eq!(
        sql(&url, &left).await.unwrap(),
        "1",
        "only the new stream has chunks"
    );
    // Truncated and not deleted: nothing is left to vacuum.
    let pages = format!(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = '{schema}' AND c.relname LIKE 'chunk\\__' AND pg_relation_size(c.oid) > 0"
    );
    assert_eq!(sql(&url, &pages).await.unwrap(), "1");
    let read = log.read(&StreamKey::new("ann", "three"), Position::START).await;
    assert_eq!(read.unwrap().count().await, 11);
}

/// The version of a row names the transaction that wrote it last.
#[tokio::test]
async fn an_idle_stream_receives_a_stop_request_without_being_written() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let schema = new_schema();
    let options = PostgresStreamLog::options(&url).schema(&schema).connections(2);
    let options = options.lease(Duration::from_hours(24));
    let log = options.poll_every(Duration::from_millis(5)).open().await.unwrap();
    let writer = log.open(&StreamKey::new("ann", "silent")).await.unwrap();

    let stop = format!("UPDATE \"{schema}\".stream SET stopped = true RETURNING xmin");
    let asked = sql(&url, &stop).await.unwrap();
    writer.stop_requested().cancelled().await;

    let written = format!("SELECT xmin FROM \"{schema}\".stream");
    assert_eq!(sql(&url, &written).await.unwrap(), asked);
}
