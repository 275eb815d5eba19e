//! The store keeps every promise of the contract, directly and through a pooler.

use std::path::PathBuf;
use std::sync::Arc;

use everturn_agent::store::SessionStore;
use everturn_testkit::certify::{certify, certify_growth, certify_processes};

use crate::support::{Fixture, Way, new_schema, options, schema_of, sql};

async fn keeps_every_promise(way: Way) {
    let Some(url) = way.url() else {
        return;
    };

    let certificate = certify(|| {
        let options = options(&url, &new_schema());
        async move { Arc::new(options.open().await.unwrap()) as Arc<dyn SessionStore> }
    })
    .await;

    certificate.assert_kept();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_keeps_every_promise() {
    keeps_every_promise(Way::Direct).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_keeps_every_promise_through_a_pooler() {
    keeps_every_promise(Way::Pooled).await;
}

async fn shared(way: Way, folder: PathBuf) -> Arc<dyn SessionStore> {
    let url = way.url().expect("the parent has one");
    Arc::new(
        options(&url, &schema_of(&folder))
            .connections(2)
            .open()
            .await
            .unwrap(),
    )
}

async fn processes_share(test: &str, way: Way) {
    if way.url().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();

    let certificate = certify_processes(test, folder.path(), async |folder| shared(way, folder).await).await;

    certificate.assert_kept();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_may_share_a_database() {
    processes_share("contract::processes_may_share_a_database", Way::Direct).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_may_share_a_database_through_a_pooler() {
    processes_share(
        "contract::processes_may_share_a_database_through_a_pooler",
        Way::Pooled,
    )
    .await;
}

#[tokio::test]
async fn snapshots_share_what_they_have_in_common() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let size = format!(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = '{}' AND c.relkind = 'r'",
        fixture.schema
    );

    let certificate = certify_growth(Arc::new(fixture.store.clone()), async || {
        sql(&fixture.url, &size).await.unwrap().parse().unwrap()
    })
    .await;

    certificate.assert_kept();
}
