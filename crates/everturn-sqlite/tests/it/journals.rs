//! Journals outlive the process that wrote them, and exclude it once another has taken over.

use everturn_agent::store::{Journal, JournalKey, JournalRecord, RECORD_TAKEN, SessionStore};
use serde_json::json;

use crate::support::{Fixture, files, open, put, row, scope};

fn key(turn: &str) -> JournalKey {
    JournalKey::new("s".into(), turn)
}

fn record(sequence: u64, text: &str) -> JournalRecord {
    JournalRecord {
        sequence,
        body: json!({"text": text}),
    }
}

#[tokio::test]
async fn a_journal_is_there_after_a_restart() {
    let fixture = Fixture::new().await;
    for sequence in 0..3 {
        let record = record(sequence, &"soup ".repeat(1000));
        fixture
            .store
            .append(&scope(), &key("t"), record, None)
            .await
            .unwrap();
    }

    let fixture = fixture.reopened().await;

    let read = fixture
        .store
        .journal()
        .unwrap()
        .read(&scope(), &key("t"))
        .await
        .unwrap();
    assert_eq!(read.len(), 3);
    assert_eq!(read[2], record(2, &"soup ".repeat(1000)));
    let found = fixture.store.verify().await.unwrap();
    assert!(found.is_clean(), "{:?}", found.problems);
    assert_eq!(found.records, 3);
}

#[tokio::test]
async fn of_two_open_handles_one_gets_a_record_number() {
    let fixture = Fixture::new().await;
    let other = open(fixture.folder.path()).await;

    let first = fixture
        .store
        .append(&scope(), &key("t"), record(0, "one"), None)
        .await;
    let second = other.append(&scope(), &key("t"), record(0, "two"), None).await;

    assert!(first.is_ok());
    assert!(second.unwrap_err().is(RECORD_TAKEN));
    let read = other.journal().unwrap().read(&scope(), &key("t")).await.unwrap();
    assert_eq!(read, [record(0, "one")]);
}

#[tokio::test]
async fn a_record_that_is_refused_takes_nothing_of_its_neighbours_with_it() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store
        .append(&scope(), &key("t"), record(0, "first"), None)
        .await
        .unwrap();

    let (scope, taken, free) = (scope(), key("t"), key("u"));
    let (refused, written, saved) = tokio::join!(
        store.append(&scope, &taken, record(0, "again"), None),
        store.append(&scope, &free, record(0, "other"), None),
        put(store, row("a", "s", 1)),
    );

    assert!(refused.is_err());
    assert!(written.is_ok() && saved.is_ok());
    let read = store.journal().unwrap().read(&scope, &free).await.unwrap();
    assert_eq!(read, [record(0, "other")]);
}

#[tokio::test]
async fn after_a_vacuum_no_file_contains_text_of_a_dropped_journal() {
    const SECRET: &str = "the safe opens with 4711";
    let fixture = Fixture::new().await;
    fixture
        .store
        .append(&scope(), &key("t"), record(0, SECRET), None)
        .await
        .unwrap();

    fixture.store.clear(&scope(), &key("t")).await.unwrap();
    fixture.store.vacuum().await.unwrap();

    for file in files(fixture.folder.path()) {
        let bytes = std::fs::read(&file).unwrap();
        let found = bytes
            .windows(SECRET.len())
            .any(|window| window == SECRET.as_bytes());
        assert!(!found, "{}", file.display());
    }
}
