//! A record of a journal that is cut off between any two file operations is whole or absent, and its number
//! is free or taken.

use everturn_agent::store::{
    Deletion, Journal, JournalKey, JournalRecord, Scope, SessionQuery, SessionStore,
};
use everturn_file::FileStore;
use jiff::Timestamp;
use serde_json::json;

use crate::support::assert_looked_between;
use crate::support::dying_disk::DyingDisk;

fn key() -> JournalKey {
    JournalKey::new("s".into(), "t")
}

fn record(sequence: u64) -> JournalRecord {
    JournalRecord {
        sequence,
        body: json!({"number": sequence, "padding": "x".repeat(1000)}),
    }
}

#[tokio::test]
async fn a_record_is_whole_or_absent_wherever_the_machine_stops() {
    for dies_before in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let scope = Scope::default();
        let (mut acknowledged, mut cleared) = (0, false);
        if let Ok(store) = FileStore::options(folder.path())
            .without_polling()
            .disk(DyingDisk::before(dies_before))
            .open()
            .await
        {
            while acknowledged < 3
                && store
                    .append(&scope, &key(), record(acknowledged), None)
                    .await
                    .is_ok()
            {
                acknowledged += 1;
            }
            cleared = acknowledged == 3 && store.clear(&scope, &key()).await.is_ok();
        }

        let store = FileStore::open(folder.path()).await.unwrap();
        let read = store.read(&scope, &key()).await.unwrap();

        // The remaining records are a prefix of the journal; it is dropped as a whole.
        let expected: Vec<_> = (0..).map(record).take(read.len()).collect();
        assert_eq!(read, expected, "when dying before operation {dies_before}");
        if acknowledged < 3 {
            assert!(
                read.len() as u64 >= acknowledged,
                "lost at operation {dies_before}"
            );
        }
        let next = read.len() as u64;
        store.append(&scope, &key(), record(next), None).await.unwrap();
        let rows = store.sessions(&scope, &SessionQuery::default()).await.unwrap();
        assert!(rows.items.is_empty(), "a journal looks like a row");

        if cleared {
            assert_looked_between(dies_before);
            return;
        }
    }
}

#[tokio::test]
async fn a_dropped_journal_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path()).await.unwrap();
    store
        .append(&Scope::default(), &key(), record(0), None)
        .await
        .unwrap();

    store.clear(&Scope::default(), &key()).await.unwrap();

    let left = std::fs::read_dir(folder.path().join(".journals"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn fragments_that_a_crash_left_of_a_record_are_deleted_with_its_session_or_with_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path()).await.unwrap();
    let scope = Scope::default();
    store.append(&scope, &key(), record(0), None).await.unwrap();
    let journals = folder.path().join(".journals");
    let journal = std::fs::read_dir(&journals)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let left = journal.with_extension("000000000001.json.0.tmp");
    let crash = || std::fs::copy(journal.join("000000000000.json"), &left).unwrap();

    crash();
    store.sweep(Timestamp::MIN).await.unwrap();
    assert!(left.exists(), "it may be on its way");
    store.sweep(Timestamp::MAX).await.unwrap();
    assert!(!left.exists());

    store.append(&scope, &key(), record(0), None).await.unwrap();
    crash();
    let session = Deletion::Session("s".into());
    store.delete(&scope, &session).await.unwrap();
    assert_eq!(std::fs::read_dir(&journals).unwrap().count(), 0);
}
