//! The published cases of the agent protocol, in the process, over the in-memory store.

use std::io::Write;

use everturn_agent::store::MemoryStore;
use everturn_testkit::conformance::cases;
use testbed::conformance::run_all;

#[tokio::test]
async fn every_published_case_holds() {
    let Some(cases) = cases("agent.yaml") else {
        return;
    };

    let report = run_all(&cases, MemoryStore::new).await.unwrap();

    // Past the test framework's capture, so that the list is seen when all is well too.
    write!(std::io::stderr(), "\n{report}").unwrap();
    assert!(report.cases() > 0, "agent.yaml holds no cases");
    assert_eq!(report.failures().count(), 0, "\n{report}");
}
