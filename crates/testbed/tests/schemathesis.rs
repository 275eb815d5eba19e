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

use std::process::Command;

use self::served::{Testbed, assert_succeeds, tools};

/// What an answer has to be, whatever was asked.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,missing_required_header,\
                      unsupported_method,allow_header_conformance";

/// One agent with all companions, flows, and what every server has: the other agents' routes are described alike, and some
/// of them fail, wait or go on for as long as they are told to.
const PATHS: &str =
    "^/(promptAgentWithStore(/getSnapshot|/abort)?|flows/echo|flows/denied|healthz|readyz|metrics)$";

#[test]
#[ignore = "needs Python and its package schemathesis"]
fn nothing_that_can_be_made_up_from_the_document_is_answered_otherwise_than_it_says() {
    let server = Testbed::start("memory");
    server.program(
        r#"{"responses":[{"message":{"role":"model","content":[{"text":"hi"}]},"finishReason":"stop"}]}"#,
    );
    let folder = tempfile::tempdir().unwrap();

    let mut schemathesis = Command::new(tools().canonicalize().unwrap().join("python/bin/schemathesis"));
    schemathesis
        // It keeps what it found in the folder it runs in.
        .current_dir(&folder)
        .args(["run", &format!("{}/openapi.json", server.address)])
        .args(["--checks", CHECKS, "--include-path-regex", PATHS])
        .args(["--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", "5", "--seed", "1", "--workers", "1"])
        .args(["--request-timeout", "10", "--no-shrink", "--continue-on-failure"])
        .args(["--suppress-health-check", "all", "--no-color"]);

    assert_succeeds(schemathesis);
}
