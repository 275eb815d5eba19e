//! The published cases of the agent protocol, in the process, over the in-memory store and over PostgreSQL,
//! and against the program `testbed --store postgres:URL`.

#![allow(
    clippy::explicit_write,
    clippy::unwrap_used,
    reason = "the list is written past the capture of tests, and what cannot be set up has failed"
)]

use std::io::Write;
use std::sync::Arc;

use everturn_agent::store::{IntoStore, MemoryStore};
use everturn_client::{Client, RemoteAgent};
use everturn_postgres::PostgresStore;
use everturn_testkit::conformance::cases;
use serde_json::{Value, json};
use testbed::conformance::{run_all, run_programmed};
use testbed::harness;

use crate::served::{Testbed, new_postgres_database};

async fn every_case_holds<T: IntoStore>(store: impl FnMut() -> T) {
    let Some(cases) = cases("agent.yaml") else {
        return;
    };

    let report = run_all(&cases, store).await.unwrap();

    // Written past the test framework's capture, so that the list is also shown on success.
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

/// Starts the program once and runs the cases against it one after the other, as a client.
async fn every_case_holds_for_the_program_on(variable: &str) {
    let (Some(cases), Some(store)) = (cases("agent.yaml"), new_postgres_database(variable).await) else {
        return;
    };
    let server = Testbed::start(&store);
    let client = Client::new().unwrap();
    let agent = |name: &str| -> RemoteAgent { client.agent(&format!("{}/{name}", server.address)).unwrap() };
    let agents = harness(MemoryStore::new()).unwrap();
    let agents = agents.reached_by(|name| Arc::new(agent(name)));
    let program = |step: &Value| {
        let [responses, chunks] = ["modelResponses", "streamChunks"]
            .map(|part| step.get(part).cloned().unwrap_or_else(|| json!([])));
        let program = json!({"responses": responses, "chunks": chunks});
        tokio::task::block_in_place(|| server.program(&program.to_string()));
        Ok(())
    };

    let mut problems = Vec::new();
    for case in &cases {
        if let Err(failure) = run_programmed(case, &agents, &program).await {
            problems.push(format!("{}: {failure}", case["name"]));
        }
    }

    assert!(!cases.is_empty());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_published_case_holds_for_the_program_on_postgres() {
    every_case_holds_for_the_program_on("EVERTURN_TEST_POSTGRES").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_published_case_holds_for_the_program_on_postgres_through_a_pooler() {
    every_case_holds_for_the_program_on("EVERTURN_TEST_PGBOUNCER").await;
}
