//! While another process holds the write lock, saves fail at their deadline and reads do not wait.

use std::time::{Duration, Instant};

use everturn_core::Status;
use everturn_sqlite::SqliteStore;
use futures::future::join_all;

use crate::support::{Fixture, begun_save, get, put, row};

const BUSY_TIMEOUT: Duration = Duration::from_millis(600);

/// The delay that a busy machine may add to a deadline. Saves that wait one after another take 15 minutes.
const GRACE: Duration = Duration::from_mins(1);

/// More saves than the queue holds.
const SAVES: usize = 1500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_saves_fail_together_while_reads_go_on() {
    let fixture = Fixture::new().await;
    put(&fixture.store, row("before", "s", 1)).await.unwrap();
    let store = SqliteStore::options(fixture.path())
        .busy_timeout(BUSY_TIMEOUT)
        .open()
        .await
        .unwrap();
    let holder = rusqlite::Connection::open(fixture.path()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();

    let asked = Instant::now();
    let saves = (0..SAVES).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let saved = put(&store, row(&format!("r{number}"), &format!("s{number}"), 2)).await;
            (saved, asked.elapsed())
        })
    });
    let saves: Vec<_> = saves.collect();
    for _ in 0..20 {
        assert!(get(&store, "before").await.is_some());
    }
    for save in join_all(saves).await {
        let (outcome, took) = save.unwrap();
        let error = outcome.unwrap_err();
        assert_eq!(error.status(), Status::Unavailable, "{error}");
        assert!(took >= BUSY_TIMEOUT, "a save failed after {took:?}");
        assert!(took < BUSY_TIMEOUT + GRACE, "a save took {took:?}");
    }
    holder.execute_batch("COMMIT").unwrap();

    put(&store, row("after", "s", 3)).await.unwrap();
}

#[tokio::test]
async fn a_save_that_waits_is_written_when_the_lock_is_free() {
    let fixture = Fixture::new().await;
    let holder = rusqlite::Connection::open(fixture.path()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = begun_save(&fixture.store, row("a", "s", 1)).await;

    holder.execute_batch("COMMIT").unwrap();

    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test]
async fn maintenance_keeps_its_deadline_too() {
    let fixture = Fixture::new().await;
    let store = SqliteStore::options(fixture.path())
        .busy_timeout(BUSY_TIMEOUT)
        .open()
        .await
        .unwrap();
    let holder = rusqlite::Connection::open(fixture.path()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();

    let asked = Instant::now();
    let (vacuum, again, checkpoint) = tokio::join!(store.vacuum(), store.vacuum(), store.checkpoint());

    for outcome in [vacuum, again, checkpoint] {
        assert_eq!(outcome.unwrap_err().status(), Status::Unavailable);
    }
    let took = asked.elapsed();
    assert!(took < BUSY_TIMEOUT + GRACE, "it took {took:?}");
}
