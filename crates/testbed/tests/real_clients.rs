//! The clients people already have, unchanged, against this server.
//!
//! Ignored by default, because they need other languages and their packages:
//!
//! ```text
//! npm install --prefix .tools/npm genkit@1.42.0
//! python3 -m venv .tools/python && .tools/python/bin/pip install genkit==0.12.0
//! cargo test -p testbed --test real_clients -- --ignored
//! ```
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A testbed server in a process of its own; ends with the test.
struct Testbed {
    process: Child,
    address: String,
}

impl Testbed {
    fn start(store: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_testbed"))
            .args(["--addr", "127.0.0.1:0", "--store", store])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ");
        let address = address
            .unwrap_or_else(|| panic!("the testbed said {line:?}"))
            .to_owned();
        Self { process, address }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has noticed by now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools")
}

fn script(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn assert_succeeds(mut command: Command) {
    let output = command.output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

    assert!(
        output.status.success(),
        "{}\n{}",
        said(&output.stdout),
        said(&output.stderr)
    );
}

fn javascript(server: &Testbed) -> Command {
    let mut command = Command::new("node");
    command
        .arg(script("javascript/client.mjs"))
        .arg(tools().join("npm"))
        .arg(&server.address);
    command
}

fn python(server: &Testbed) -> Command {
    let mut command = Command::new(tools().join("python/bin/python"));
    command.arg(script("python/client.py")).arg(&server.address);
    command
}

#[test]
#[ignore = "needs node and the npm package genkit"]
fn the_javascript_client_drives_it_on_every_store() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("testbed.db").display());
    let files = format!("file:{}", folder.path().join("files").display());

    for store in ["memory", &sqlite, &files] {
        assert_succeeds(javascript(&Testbed::start(store)));
    }
}

#[test]
#[ignore = "needs Python and its package genkit"]
fn the_python_client_drives_it() {
    assert_succeeds(python(&Testbed::start("memory")));
}
