//! Checking, compacting and copying a database.

use std::sync::Arc;

use everturn_agent::store::{Deletion, Detail, SessionStore};
use everturn_core::Status;
use everturn_sqlite::SqliteStore;
use serde_json::json;

use crate::support::{Fixture, bytes_on_disk, get, noise, put, row, scope, state_of};

async fn filled() -> Fixture {
    let fixture = Fixture::new().await;
    let mut random = fastrand::Rng::with_seed(3);
    let mut state = state_of(&["hello"]);
    for second in 0..30 {
        state
            .messages
            .push(everturn_ai::Message::user(noise(&mut random, 20_000)));
        state.custom = Some(Arc::new(json!({"count": second})));
        let mut row = row(&format!("r{second}"), "s", second);
        row.state = Some(state.clone());
        put(&fixture.store, row).await.unwrap();
    }
    fixture
}

#[tokio::test]
async fn a_whole_database_is_clean() {
    let fixture = filled().await;

    let found = fixture.store.verify().await.unwrap();

    assert!(found.is_clean(), "{:?}", found.problems);
    assert_eq!(
        (found.snapshots, found.messages, found.documents, found.blobs),
        (30, 31, 30, 30)
    );
}

#[tokio::test]
async fn every_kind_of_damage_is_found() {
    let damages = [
        "DELETE FROM message WHERE key = (SELECT max(key) FROM message WHERE cuts = 0)",
        "UPDATE message SET body = 'not JSON'",
        "UPDATE message SET body = x'00112233'",
        "DELETE FROM lineage",
        "UPDATE snapshot SET up_to = up_to + 100",
        "UPDATE document SET body = '{'",
        "DELETE FROM document WHERE key = (SELECT max(key) FROM document)",
        "UPDATE blob SET body = 'x' || substr(body, 2) WHERE typeof(body) = 'text'; UPDATE blob SET hash = randomblob(32)",
        "DELETE FROM message_blob",
        "DELETE FROM tip",
        "UPDATE tip SET created_at = 0",
        "DELETE FROM session",
        "INSERT INTO lineage (base, open, checksum) VALUES (0, 1, 0)",
        "INSERT INTO blob (hash, body) VALUES (x'00', 'lost')",
    ];
    for damage in damages {
        let fixture = filled().await;
        let connection = rusqlite::Connection::open(fixture.path()).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        connection.execute_batch(damage).unwrap();

        let found = fixture.store.verify().await.unwrap();

        assert!(!found.is_clean(), "nothing found after {damage}");
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_data_loss_and_others_can() {
    let fixture = filled().await;
    put(&fixture.store, row("other", "t", 1)).await.unwrap();
    let connection = rusqlite::Connection::open(fixture.path()).unwrap();
    connection
        .execute_batch("UPDATE message SET body = x'00112233'")
        .unwrap();
    let fixture = fixture.reopened().await;

    let error = fixture
        .store
        .get(&scope(), &"r3".into(), Detail::Whole)
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::DataLoss);
    assert!(error.message().contains("restore a backup"), "{error}");
    assert!(
        fixture
            .store
            .get(&scope(), &"r3".into(), Detail::Metadata)
            .await
            .unwrap()
            .is_some()
    );
    assert!(get(&fixture.store, "other").await.is_some());
}

#[tokio::test]
async fn compaction_gives_back_what_was_deleted() {
    let fixture = filled().await;
    fixture.store.checkpoint().await.unwrap();
    let before = bytes_on_disk(fixture.folder.path());

    fixture
        .store
        .delete(&scope(), &Deletion::Session("s".into()))
        .await
        .unwrap();
    fixture.store.vacuum().await.unwrap();

    let after = bytes_on_disk(fixture.folder.path());
    assert!(after < before / 3, "{before} bytes before, {after} after");
}

#[tokio::test]
async fn a_backup_taken_while_saves_go_on_is_a_store_of_one_moment() {
    let fixture = filled().await;
    let copy = fixture.folder.path().join("copy.db");
    let store = fixture.store.clone();
    let saves = tokio::spawn(async move {
        for second in 100..200 {
            put(&store, row(&format!("r{second}"), "s", second))
                .await
                .unwrap();
        }
    });

    fixture.store.backup(&copy).await.unwrap();
    saves.await.unwrap();

    let copied = SqliteStore::open(&copy).await.unwrap();
    assert!(copied.verify().await.unwrap().is_clean());
    assert_eq!(get(&copied, "r29").await, get(&fixture.store, "r29").await);
    put(&copied, row("new", "s", 999)).await.unwrap();
    assert_eq!(get(&fixture.store, "new").await, None);
}

#[tokio::test]
async fn a_backup_replaces_nothing() {
    let fixture = filled().await;
    let copy = fixture.folder.path().join("precious.txt");
    std::fs::write(&copy, "precious").unwrap();

    let error = fixture.store.backup(&copy).await.unwrap_err();

    assert_eq!(error.status(), Status::AlreadyExists);
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "precious");
}
