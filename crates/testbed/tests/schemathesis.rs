//! Requests made up from the OpenAPI document, sent to everything that it describes.
//!
//! Ignored by default, because it needs Python and its package `schemathesis`:
//!
//! ```text
//! python3 -m venv .tools/python && .tools/python/bin/pip install schemathesis==4.32.5
//! cargo test -p testbed --test schemathesis -- --ignored
//! ```
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod served;

use std::path::Path;
use std::process::Command;

use self::served::{Testbed, assert_succeeds, tools};

/// What an answer has to be, whatever was asked.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,missing_required_header,\
                      unsupported_method,allow_header_conformance";

/// One agent with all companions, flows, and what every server has: the other agents' routes are described alike, and some
/// of them fail, wait or go on for as long as they are told to.
const PATHS: &str = "^/(promptAgentWithStore(/(getSnapshot|abort|listSnapshots|getSession|watch|listSessions|tree|diff))?|flows/echo|flows/denied|healthz|readyz|metrics)$";

/// How many requests are made up for each operation, beside those that follow from the document alone.
const EXAMPLES: &str = "15";

fn testbed() -> Testbed {
    let server = Testbed::start("memory");
    server.program(
        r#"{"responses":[{"message":{"role":"model","content":[{"text":"hi"}]},"finishReason":"stop"}]}"#,
    );
    server
}

/// Has requests made up and their answers checked. It keeps what it found in the folder it runs in.
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
    // A stream has begun, with status 200, when it says that it is refused: that is the protocol.
    let without_streams = "[parameters]\n\"query.stream\" = false\n";
    std::fs::write(folder.path().join("schemathesis.toml"), without_streams).unwrap();

    let mut schemathesis = schemathesis(&server, "negative_data_rejection", folder.path());
    schemathesis.args(["--mode", "negative"]);

    assert_succeeds(schemathesis);
}
