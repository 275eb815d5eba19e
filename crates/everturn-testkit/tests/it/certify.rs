//! The kit passes a store that keeps its promises and catches every one that does not.

use std::sync::Arc;

use everturn_agent::store::{Detail, MemoryStore, Scope, SessionStore, SnapshotQuery};
use everturn_testkit::certify::defects::{Defect, DefectiveStore};
use everturn_testkit::certify::{certify, certify_growth};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_in_memory_keeps_every_promise() {
    let certificate = certify(|| async { Arc::new(MemoryStore::new()) as Arc<dyn SessionStore> }).await;

    certificate.assert_kept();
}

// On one thread, where tasks take turns whenever one yields: a race that a defect leaves open is run into every time.
#[tokio::test]
async fn every_planted_defect_is_caught() {
    let examined = Defect::ALL.map(|defect| async move {
        let store = || async { Arc::new(DefectiveStore::new(defect)) as Arc<dyn SessionStore> };
        (defect, certify(store).await)
    });

    for (defect, certificate) in futures::future::join_all(examined).await {
        let promise = defect.broken_promise();
        assert!(
            certificate.broken().any(|finding| finding.promise == promise),
            "{defect:?} was not caught by '{promise}':\n{certificate}"
        );
    }
}

#[tokio::test]
async fn a_store_that_keeps_every_snapshot_whole_is_found_to_grow() {
    let store = Arc::new(MemoryStore::new());

    let certificate = certify_growth(store.clone(), async || documents(&store).await).await;

    assert_eq!(certificate.broken().count(), 2, "{certificate}");
}

#[tokio::test]
async fn a_wrong_measure_of_the_stores_size_is_noticed() {
    let certificate = certify_growth(Arc::new(MemoryStore::new()), async || 4_096).await;

    assert_eq!(certificate.broken().count(), 1, "{certificate}");
}

/// How many bytes the store would take if each snapshot were a document.
async fn documents(store: &MemoryStore) -> u64 {
    let mut bytes = 0;
    let sessions = std::iter::once("s".to_owned()).chain((0..20).map(|fork| format!("fork-{fork}")));
    for session in sessions {
        let mut query = SnapshotQuery::of(session.into());
        query.detail = Detail::Whole;
        query.limit = 1_000;
        let page = store.list(&Scope::default(), &query).await.expect("a page");
        let texts = page
            .items
            .iter()
            .map(|row| serde_json::to_string(row).expect("plain data"));
        bytes += texts.map(|text| text.len() as u64).sum::<u64>();
    }
    bytes
}
