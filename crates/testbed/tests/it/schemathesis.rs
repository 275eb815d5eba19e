//! Requests generated from the OpenAPI document, sent to all described operations.
//!
//! Ignored by default, because it needs Python and its package `schemathesis`:
//!
//! ```text
//! python3 -m venv .tools/python && .tools/python/bin/pip install schemathesis==4.32.5
//! cargo test -p testbed --test it schemathesis -- --ignored
//! ```

use std::path::Path;
use std::process::Command;

use crate::served::{Testbed, assert_succeeds, tools};

/// The checks of each response.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,missing_required_header,\
                      unsupported_method,allow_header_conformance";

/// One agent with all its actions, flows, and the server's own routes. The other agents' routes have the same
/// description, and some of them fail, wait or never end by design.
const PATHS: &str = "^/(promptAgentWithStore(/(getSnapshot|abort|listSnapshots|getSession|watch|listSessions|tree|diff))?|flows/echo|flows/denied|healthz|readyz|metrics)$";

/// The number of generated requests per operation, in addition to those that follow from the document.
const EXAMPLES: &str = "15";

fn testbed() -> Testbed {
    let server = Testbed::start("memory");
    server.program(
        r#"{"responses":[{"message":{"role":"model","content":[{"text":"hi"}]},"finishReason":"stop"}]}"#,
    );
    server
}

/// Runs the generator and its checks. It stores its findings in its working folder.
fn schemathesis(server: &Testbed, checks: &str, folder: &Path) -> Command {
    let mut command = Command::new(tools().canonicalize().unwrap().join("python/bin/schemathesis"));
    command
        .current_dir(folder)
        .args(["run", &format!("{}/openapi.json", server.address)])
        .args(["--checks", checks, "--include-path-regex", PATHS])
        .args(["--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", EXAMPLES, "--seed", "1", "--workers", "1"])
        .args(["--request-timeout", "10", "--no-shrink", "--continue-on-failure"])
        .args(["--suppress-health-check", "all", "--no-color"]);
    command
}

#[test]
#[ignore = "needs Python and its package schemathesis"]
fn every_generated_request_is_answered_as_documented() {
    let (server, folder) = (testbed(), tempfile::tempdir().unwrap());

    let schemathesis = schemathesis(&server, CHECKS, folder.path());

    assert_succeeds(schemathesis);
}

#[test]
#[ignore = "needs Python and its package schemathesis"]
fn requests_that_the_document_does_not_allow_are_refused() {
    let (server, folder) = (testbed(), tempfile::tempdir().unwrap());
    // By design, a stream has started with status 200 before it reports an error.
    let without_streams = "[parameters]\n\"query.stream\" = false\n";
    std::fs::write(folder.path().join("schemathesis.toml"), without_streams).unwrap();

    let mut schemathesis = schemathesis(&server, "negative_data_rejection", folder.path());
    schemathesis.args(["--mode", "negative"]);

    assert_succeeds(schemathesis);
}
