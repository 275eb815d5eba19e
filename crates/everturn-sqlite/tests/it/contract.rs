//! The store keeps every promise of the contract.

use std::path::PathBuf;
use std::sync::Arc;

use everturn_agent::store::SessionStore;
use everturn_sqlite::{Durability, SqliteStore};
use everturn_testkit::certify::{certify, certify_growth, certify_processes};

use crate::support::{Fixture, bytes_on_disk};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_keeps_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    let mut stores = 0;

    let certificate = certify(|| {
        stores += 1;
        let path = folder.path().join(format!("{stores}.db"));
        async move {
            let store = SqliteStore::options(path)
                .durability(Durability::Normal)
                .open()
                .await;
            Arc::new(store.unwrap()) as Arc<dyn SessionStore>
        }
    })
    .await;

    certificate.assert_kept();
}

async fn shared(folder: PathBuf) -> Arc<dyn SessionStore> {
    let options = SqliteStore::options(folder.join("sessions.db")).durability(Durability::Normal);
    Arc::new(options.open().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_may_share_a_database() {
    let folder = tempfile::tempdir().unwrap();

    let certificate =
        certify_processes("contract::processes_may_share_a_database", folder.path(), shared).await;

    certificate.assert_kept();
}

#[tokio::test]
async fn snapshots_share_what_they_have_in_common() {
    let fixture = Fixture::new().await;
    let store = fixture.store.clone();

    let certificate = certify_growth(Arc::new(store.clone()), async || {
        store.checkpoint().await.unwrap();
        bytes_on_disk(fixture.folder.path())
    })
    .await;

    certificate.assert_kept();
}
