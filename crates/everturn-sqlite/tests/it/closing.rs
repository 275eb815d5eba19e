//! A store that was closed is one file with everything in it.

use std::path::Path;
use std::time::Duration;

use everturn_agent::store::{Detail, SessionStore};
use everturn_core::Status;
use everturn_sqlite::SqliteStore;
use everturn_testkit::in_time;
use futures::StreamExt;

use crate::support::{Fixture, begun_save, get, put, row, scope, state_of};

/// Asserts that the database file alone holds the row, and that there is no write-ahead log.
async fn assert_complete(path: &Path, id: &str) {
    let log = path.with_file_name("sessions.db-wal");
    assert!(!log.exists(), "the write-ahead log is still there");
    let copy = path.with_file_name("copy.db");
    std::fs::copy(path, &copy).unwrap();
    let copied = SqliteStore::open(&copy).await.unwrap();
    assert!(
        get(&copied, id).await.is_some(),
        "the file alone lacks what was saved"
    );
}

async fn fixture_with_rows() -> Fixture {
    let fixture = Fixture::new().await;
    for number in 0..20 {
        let mut row = row(&format!("r{number}"), "s", number);
        row.state = Some(state_of(&["one", "two"]));
        put(&fixture.store, row).await.unwrap();
    }
    fixture
}

#[tokio::test]
async fn dropping_the_last_handle_leaves_one_complete_file() {
    let fixture = fixture_with_rows().await;
    let path = fixture.path();
    let Fixture { folder, store } = fixture;
    let clone = store.clone();
    let mut watch = store.watch(&scope(), &"r0".into()).unwrap();
    assert!(watch.next().await.is_some());
    drop(store);

    drop(clone);

    assert!(watch.next().await.is_none(), "watches end with their store");
    assert_complete(&path, "r19").await;
    drop(folder);
}

#[tokio::test]
async fn closing_leaves_one_complete_file_although_handles_are_left() {
    let fixture = fixture_with_rows().await;

    fixture.store.close().await.unwrap();

    assert_complete(&fixture.path(), "r19").await;
    let read = fixture.store.get(&scope(), &"r1".into(), Detail::Whole).await;
    assert_eq!(read.unwrap_err().status(), Status::FailedPrecondition);
    let saved = put(&fixture.store, row("late", "s", 99)).await;
    assert_eq!(saved.unwrap_err().status(), Status::FailedPrecondition);
    assert!(
        fixture
            .store
            .watch(&scope(), &"r1".into())
            .unwrap()
            .next()
            .await
            .is_none()
    );
    fixture.store.close().await.unwrap();
}

#[tokio::test]
async fn saves_under_way_are_finished_before_the_file_is_closed() {
    let fixture = Fixture::new().await;
    let saves: Vec<_> = (0..50)
        .map(|number| {
            let store = fixture.store.clone();
            tokio::spawn(async move { put(&store, row(&format!("r{number}"), "s", number)).await })
        })
        .collect();
    tokio::task::yield_now().await;

    fixture.store.close().await.unwrap();

    let mut acknowledged = Vec::new();
    for (number, save) in saves.into_iter().enumerate() {
        if save.await.unwrap().is_ok() {
            acknowledged.push(format!("r{number}"));
        }
    }
    let reopened = SqliteStore::open(fixture.path()).await.unwrap();
    for id in acknowledged {
        assert!(get(&reopened, &id).await.is_some(), "{id} was acknowledged");
    }
}

#[tokio::test]
async fn a_store_closes_although_another_process_holds_the_lock() {
    let fixture = fixture_with_rows().await;
    let options = SqliteStore::options(fixture.path()).busy_timeout(Duration::from_hours(1));
    let store = options.open().await.unwrap();
    let other = rusqlite::Connection::open(fixture.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = begun_save(&store, row("late", "s", 99)).await;

    in_time("the store is closed", store.close()).await.unwrap();

    assert_eq!(waiting.await.unwrap().unwrap_err().status(), Status::Unavailable);
}
