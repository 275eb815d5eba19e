//! Which files open, and what is in them when they do.

use everturn_core::Status;
use everturn_sqlite::SqliteStore;

use crate::support::{Fixture, get, put, row, state_of};

#[tokio::test]
async fn saved_rows_are_there_after_reopening() {
    let fixture = Fixture::new().await;
    let mut kept = row("a", "s", 1);
    kept.state = Some(state_of(&["one", "two"]));
    put(&fixture.store, kept.clone()).await.unwrap();

    let fixture = fixture.reopened().await;

    assert_eq!(get(&fixture.store, "a").await, Some(kept));
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_left_alone() {
    let fixture = Fixture::new().await;
    fixture.store.checkpoint().await.unwrap();
    let path = fixture.path();
    let Fixture { folder, store } = fixture;
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 1_000).unwrap();

    let error = SqliteStore::open(&path).await.unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(
        error.message().contains("1000") && error.message().contains("update"),
        "{error}"
    );
    let version: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 1_000);
    drop(folder);
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch("CREATE TABLE recipe (name TEXT)")
        .unwrap();

    let error = SqliteStore::open(&path).await.unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .unwrap();
    assert_eq!(tables, 1);
}

#[tokio::test]
async fn a_database_whose_tables_are_not_those_of_its_version_is_refused_with_a_sentence() {
    for (what, change) in [
        ("an old form of a table", "ALTER TABLE snapshot DROP COLUMN named"),
        ("a missing table", "DROP TABLE tip"),
        ("a version that never was", "PRAGMA user_version = 0"),
    ] {
        let fixture = Fixture::new().await;
        fixture.store.close().await.unwrap();
        let connection = rusqlite::Connection::open(fixture.path()).unwrap();
        connection.execute_batch(change).unwrap();
        drop(connection);

        let error = SqliteStore::open(fixture.path()).await.unwrap_err();

        assert_eq!(error.status(), Status::FailedPrecondition, "{what}: {error}");
        assert!(
            error.message().contains("not a session database"),
            "{what}: {error}"
        );
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let notes = "buy leeks\n".repeat(500);
    std::fs::write(&path, &notes).unwrap();

    let error = SqliteStore::open(&path).await.unwrap_err();

    assert_eq!(error.status(), Status::DataLoss, "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), notes);
}

#[tokio::test]
async fn a_folder_that_does_not_exist_is_named() {
    let folder = tempfile::tempdir().unwrap();

    let error = SqliteStore::open(folder.path().join("nowhere/sessions.db"))
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(error.message().contains("nowhere"), "{error}");
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = || SqliteStore::options(folder.path().join("sessions.db"));

    for options in [
        options().readers(0),
        options().encoding(everturn_sqlite::Encoding::default().blob_threshold(0)),
        options().poll_every(std::time::Duration::ZERO),
    ] {
        assert_eq!(
            options.open().await.unwrap_err().status(),
            Status::InvalidArgument
        );
    }
}

#[tokio::test]
async fn a_locked_database_is_unavailable_for_now() {
    let fixture = Fixture::new().await;
    let patience = std::time::Duration::from_millis(50);
    let hasty = SqliteStore::options(fixture.path())
        .busy_timeout(patience)
        .open()
        .await
        .unwrap();
    let other = rusqlite::Connection::open(fixture.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();

    let error = put(&hasty, row("a", "s", 1)).await.unwrap_err();
    other.execute_batch("COMMIT").unwrap();
    let later = put(&hasty, row("a", "s", 1)).await;

    assert_eq!(error.status(), Status::Unavailable);
    assert!(later.is_ok());
}
