//! The published cases of the agent protocol, in the process, over the in-memory store and over PostgreSQL.

#![allow(
    clippy::explicit_write,
    clippy::unwrap_used,
    reason = "the list is written past the capture of tests, and what cannot be set up has failed"
)]

use std::io::Write;

use everturn_agent::store::{IntoStore, MemoryStore};
use everturn_postgres::PostgresStore;
use everturn_testkit::conformance::cases;
use testbed::conformance::run_all;

async fn every_case_holds<T: IntoStore>(store: impl FnMut() -> T) {
    let Some(cases) = cases("agent.yaml") else {
        return;
    };

    let report = run_all(&cases, store).await.unwrap();

    // Past the test framework's capture, so that the list is seen when all is well too.
    write!(std::io::stderr(), "\n{report}").unwrap();
    assert!(report.cases() > 0, "agent.yaml holds no cases");
    assert_eq!(report.failures().count(), 0, "\n{report}");
}

#[tokio::test]
async fn every_published_case_holds() {
    every_case_holds(MemoryStore::new).await;
}

async fn every_case_holds_on(variable: &str) {
    let Ok(url) = std::env::var(variable) else {
        println!("skipped: {variable} names no server; ./test starts one");
        return;
    };
    every_case_holds(|| {
        let schema = format!("case_{:016x}", fastrand::u64(..));
        let options = PostgresStore::options(&url).schema(schema).connections(4);
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| runtime.block_on(options.open())).unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_published_case_holds_on_postgres() {
    every_case_holds_on("EVERTURN_TEST_POSTGRES").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_published_case_holds_on_postgres_through_a_pooler() {
    every_case_holds_on("EVERTURN_TEST_PGBOUNCER").await;
}
