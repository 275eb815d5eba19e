//! The store keeps every promise of the contract.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::SessionStore;
use everturn_file::FileStore;
use everturn_testkit::certify::certify;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_keeps_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    let mut stores = 0;

    let certificate = certify(|| {
        stores += 1;
        let options = FileStore::options(folder.path().join(stores.to_string()));
        async move {
            let store = options.poll_every(Duration::from_millis(20)).open().await;
            Arc::new(store.unwrap()) as Arc<dyn SessionStore>
        }
    })
    .await;

    certificate.assert_kept();
}
