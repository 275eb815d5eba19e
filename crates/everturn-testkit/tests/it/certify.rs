//! The kit passes a correct store and detects every defect.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_agent::SnapshotId;
use everturn_agent::store::{Detail, MemoryStore, Scope, SessionStore, SnapshotQuery};
use everturn_testkit::certify::defects::{Defect, DefectiveStore};
use everturn_testkit::certify::faults::{DefectiveBackend, Fault, FaultDefect, Faults};
use everturn_testkit::certify::{certify, certify_faults, certify_growth};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_in_memory_keeps_every_promise() {
    let certificate = certify(|| async { Arc::new(MemoryStore::new()) as Arc<dyn SessionStore> }).await;

    certificate.assert_kept();
}

// On one thread, where tasks switch whenever one yields, so every race that a defect leaves open occurs each
// time.
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

/// The number of bytes that the store would need if each snapshot were a document.
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

/// A store in memory, which cannot have external faults.
struct InMemory(MemoryStore);

#[async_trait]
impl Faults for InMemory {
    async fn open(&self) -> Arc<dyn SessionStore> {
        Arc::new(self.0.clone())
    }

    fn busy_timeout(&self) -> Duration {
        Duration::ZERO
    }

    async fn hold_lock(&self) -> Fault<Box<dyn Send>> {
        Fault::Impossible("no other process shares it")
    }

    async fn damage(&self, _: &SnapshotId) -> Fault<()> {
        Fault::Impossible("nothing is stored outside of the process")
    }

    async fn remove(&self, _: &SnapshotId) -> Fault<()> {
        Fault::Impossible("nothing is stored outside of the process")
    }
}

#[tokio::test]
async fn a_store_without_external_faults_reports_it() {
    let certificate = certify_faults(|| InMemory(MemoryStore::new())).await;

    certificate.assert_kept();
    assert!(
        certificate
            .findings()
            .iter()
            .all(|finding| finding.excused.is_some())
    );
}

#[tokio::test]
async fn a_store_that_names_its_faults_keeps_every_promise() {
    let certificate = certify_faults(|| DefectiveBackend::new(None)).await;

    certificate.assert_kept();
    assert!(
        certificate
            .findings()
            .iter()
            .all(|finding| finding.excused.is_none())
    );
}

#[tokio::test]
async fn every_fault_that_is_not_noticed_is_caught() {
    let examined = FaultDefect::ALL.map(|defect| async move {
        (
            defect,
            certify_faults(|| DefectiveBackend::new(Some(defect))).await,
        )
    });

    for (defect, certificate) in futures::future::join_all(examined).await {
        let promise = defect.broken_promise();
        assert!(
            certificate.broken().any(|finding| finding.promise == promise),
            "{defect:?} was not caught by '{promise}':\n{certificate}"
        );
    }
}
