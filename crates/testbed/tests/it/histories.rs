//! Every store agrees with a list of full snapshots after any operations on histories.

use std::sync::Arc;

use everturn_agent::SnapshotIds;
use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_file::FileStore;
use everturn_postgres::PostgresStore;
use everturn_sqlite::{Durability, SqliteStore};
use everturn_testkit::histories::{Discrepancy, Step, check_program};
use proptest::prelude::*;
use tempfile::TempDir;

fn program(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any::<u64>().prop_map(Step::from_random), 1..longest)
}

fn ids() -> impl Strategy<Value = SnapshotIds> {
    prop_oneof![Just(SnapshotIds::Uuid), Just(SnapshotIds::ContentAddressed)]
}

fn run(check: impl Future<Output = Result<(), Discrepancy>>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let checked = runtime.block_on(check);
    checked.map_err(|discrepancy| TestCaseError::fail(discrepancy.to_string()))
}

async fn sqlite(folder: &TempDir) -> SqliteStore {
    // Low limits, so that short programs reach the code for large conversations.
    let options = SqliteStore::options(folder.path().join("sessions.db")).durability(Durability::Normal);
    options
        .encoding(everturn_sqlite::Encoding::default().blob_threshold(300))
        .cache_bytes(20_000)
        .open()
        .await
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_memory_store_keeps_histories(ids in ids(), program in program(40)) {
        run(check_program(Arc::new(MemoryStore::new()), ids, &program))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn the_sqlite_store_keeps_histories(ids in ids(), program in program(30)) {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let store = sqlite(&folder).await;
            check_program(Arc::new(store.clone()), ids, &program).await?;
            let found = store.verify().await.unwrap();
            assert!(found.is_clean(), "{:#?}", found.problems);
            Ok(())
        })?;
    }

    #[test]
    fn the_postgres_store_keeps_histories(ids in ids(), program in program(30)) {
        let Ok(url) = std::env::var("EVERTURN_TEST_POSTGRES") else {
            println!("skipped: EVERTURN_TEST_POSTGRES names no server; ./test starts one");
            return Ok(());
        };
        run(async {
            let schema = format!("histories_{:016x}", fastrand::u64(..));
            let options = PostgresStore::options(url).schema(schema).connections(4).without_listening();
            let store = options.encoding(everturn_sqlite::Encoding::default().blob_threshold(300)).cache_bytes(20_000).open().await.unwrap();
            check_program(Arc::new(store.clone()), ids, &program).await?;
            let found = store.verify().await.unwrap();
            assert!(found.is_clean(), "{:#?}", found.problems);
            Ok(())
        })?;
    }

    #[test]
    fn the_file_store_keeps_histories(ids in ids(), program in program(16)) {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let store: Arc<dyn SessionStore> = Arc::new(FileStore::open(folder.path()).await.unwrap());
            check_program(store, ids, &program).await
        })?;
    }
}
