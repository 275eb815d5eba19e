//! The kit passes a store that keeps its promises and catches every one that does not.

use std::sync::Arc;

use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_testkit::certify::certify;
use everturn_testkit::certify::defects::{Defect, DefectiveStore};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_in_memory_keeps_every_promise() {
    let certificate = certify(|| async { Arc::new(MemoryStore::new()) as Arc<dyn SessionStore> }).await;

    certificate.assert_kept();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_planted_defect_is_caught() {
    let examined = Defect::ALL.map(|defect| async move {
        let store = || async { Arc::new(DefectiveStore::new(defect)) as Arc<dyn SessionStore> };
        (defect, certify(store).await)
    });

    for (defect, certificate) in futures::future::join_all(examined).await {
        assert!(
            certificate.broken().next().is_some(),
            "{defect:?} was not caught:\n{certificate}"
        );
    }
}
