//! Using a database with any values in its rows returns results or errors, and never panics.

use std::path::PathBuf;
use std::sync::LazyLock;

use everturn_agent::store::{Detail, Scope, SessionStore};
use everturn_core::Status;
use everturn_sqlite::SqliteStore;
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::fuzz_entry::{Damage, fill_store, fill_streams, use_store, use_streams};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A good store and a good stream log.
static GOOD: LazyLock<(TempDir, PathBuf, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let (store, streams) = (folder.path().join("store.db"), folder.path().join("streams.db"));
    runtime().block_on(async {
        fill_store(&store).await;
        fill_streams(&streams).await;
    });
    (folder, store, streams)
});

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        prop::sample::select(vec![
            "{}",
            "[]",
            "null",
            "[[",
            "{\"role\":\"user\",\"content\":[]}",
            "done",
            "lost"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    let number = prop_oneof![-2_i64..12, any::<i64>(), Just(i64::MAX), Just(i64::MIN)];
    prop::collection::vec((any::<u8>(), 0..8_u8, any::<u8>(), number, bytes), 1..4)
}

#[test]
fn rows_that_lead_in_circles_or_too_deep_are_damaged() {
    for damage in [
        "UPDATE document SET base = key, cuts = 0, body = '[]'",
        "UPDATE lineage SET parent = key",
        "UPDATE snapshot SET lineage = 9223372036854775807, up_to = 9223372036854775807",
        "UPDATE message SET cuts = 0, body = replace(hex(zeroblob(100000)), '0', '[')",
        "UPDATE snapshot SET up_to = -1",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged.db");
        std::fs::copy(&GOOD.1, &path).unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        db.pragma_update(None, "foreign_keys", false).unwrap();
        db.execute_batch(damage).unwrap();
        drop(db);

        let read = runtime().block_on(async {
            let store = SqliteStore::open(&path).await.unwrap();
            store.get(&Scope::default(), &"r3".into(), Detail::Whole).await
        });

        let status = read.err().map(|error| error.status());
        assert_eq!(status, Some(Status::DataLoss), "{damage}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_damaged_store_is_used_as_far_as_it_is_whole(damages in damages()) {
        let folder = tempfile::tempdir().unwrap();

        runtime().block_on(use_store(folder.path(), &GOOD.1, &damages));
    }

    #[test]
    fn a_damaged_stream_log_is_read_as_far_as_it_is_whole(damages in damages()) {
        let folder = tempfile::tempdir().unwrap();

        runtime().block_on(use_streams(folder.path(), &GOOD.2, &damages));
    }
}
