//! Existing clients, unchanged, against this server.
//!
//! Ignored by default, because they need other languages and their packages:
//!
//! ```text
//! npm install --prefix .tools/npm genkit@1.42.0 openai@7.53.0 @ag-ui/client@1.0.0 \
//!     ag-ui-client-before-1.0@npm:@ag-ui/client@0.0.59 @copilotkit/core@1.75.0 ai@7.0.169 @ai-sdk/openai@4.0.114
//! python3 -m venv .tools/python && .tools/python/bin/pip install genkit==0.12.0 openai==3.49.0 openai-agents==0.24.0
//! cargo test -p testbed --test it real_clients -- --ignored
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::served::{Testbed, assert_succeeds, new_postgres_database, tools};

fn script(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn node(path: &str, server: &Testbed) -> Command {
    let mut command = Command::new("node");
    command
        .arg(script(path))
        .arg(tools().join("npm"))
        .arg(&server.address);
    command
}

fn python(path: &str, server: &Testbed) -> Command {
    let mut command = Command::new(tools().join("python/bin/python"));
    command.arg(script(path)).arg(&server.address);
    command
}

fn for_every_store(client: impl Fn(&Testbed) -> Command) {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("testbed.db").display());
    let files = format!("file:{}", folder.path().join("files").display());

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let postgres = runtime.block_on(new_postgres_database("EVERTURN_TEST_POSTGRES"));

    for store in ["memory", &sqlite, &files].into_iter().chain(postgres.as_deref()) {
        assert_succeeds(client(&Testbed::start(store)));
    }
}

#[test]
#[ignore = "needs node and the npm package genkit"]
fn the_javascript_client_drives_it_on_every_store() {
    for_every_store(|server| node("javascript/client.mjs", server));
}

#[test]
#[ignore = "needs Python and its package genkit"]
fn the_python_client_drives_it_on_every_store() {
    for_every_store(|server| python("python/client.py", server));
}

#[test]
#[ignore = "needs node and the npm package openai"]
fn the_openai_client_of_javascript_drives_it_on_every_store() {
    for_every_store(|server| node("javascript/openai.mjs", server));
}

#[test]
#[ignore = "needs node and the npm packages of AG-UI and CopilotKit"]
fn the_clients_of_ag_ui_drive_it_on_every_store() {
    for_every_store(|server| node("javascript/agui.mjs", server));
}

#[test]
#[ignore = "needs Python and its package openai"]
fn the_openai_client_of_python_drives_it_on_every_store() {
    for_every_store(|server| python("python/openai_client.py", server));
}

#[test]
#[ignore = "needs node and the npm packages of the AI SDK"]
fn the_ai_sdk_drives_it() {
    assert_succeeds(node("javascript/ai_sdk.mjs", &Testbed::start("memory")));
}

#[test]
#[ignore = "needs Python and its package openai-agents"]
fn agents_of_the_openai_agents_sdk_use_it_as_their_model() {
    assert_succeeds(python("python/openai_agents.py", &Testbed::start("memory")));
}
