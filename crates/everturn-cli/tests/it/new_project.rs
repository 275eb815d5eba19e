//! A new project builds, tests and serves.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::Program;

/// The sources of a project, compiled and tested with these tests.
#[path = "../../templates/main.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "it is a program of its own, in which everything is used"
)]
mod project;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .parent()
        .unwrap()
}

fn begin(folder: &Path, name: &str) {
    let checkout = workspace().to_str().unwrap();
    let ran = Program::new(&["new", name, "--path", checkout])
        .folder(folder)
        .run()
        .exits(0);
    assert!(ran.out.contains("cargo test"), "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_has_an_agent_a_test_and_a_dockerfile() {
    let folder = TempDir::new().unwrap();

    begin(folder.path(), "my-agent");

    let read = |file: &str| fs::read_to_string(folder.path().join("my-agent").join(file)).unwrap();
    assert!(read("Cargo.toml").contains("name = \"my-agent\""));
    assert!(read("Cargo.toml").contains(&format!("path = '{}/crates/everturn'", workspace().display())));
    assert!(read("src/assistant.rs").contains("#[tokio::test]"));
    assert!(read("Dockerfile").contains("CMD [\"my-agent\"]"));
    assert!(read(".gitignore").contains("target"));
    assert!(read("README.md").contains("docker build --build-context everturn="));
}

#[tokio::test(flavor = "multi_thread")]
async fn cargo_understands_the_manifest() {
    let folder = TempDir::new().unwrap();
    begin(folder.path(), "my-agent");

    let read = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(folder.path().join("my-agent"))
        .output()
        .unwrap();

    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let read: everturn::prelude::Value = everturn::serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(read["packages"][0]["name"], "my-agent");
    assert_eq!(read["packages"][0]["dependencies"][0]["name"], "everturn");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_over() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("kitchen")).unwrap();

    let taken = Program::new(&["new", "kitchen"])
        .folder(folder.path())
        .run()
        .exits(5);
    let wrong = Program::new(&["new", "My Agent"])
        .folder(folder.path())
        .run()
        .exits(2);
    let no_checkout = Program::new(&["new", "agent", "--path", "."])
        .folder(folder.path())
        .run()
        .exits(2);

    assert!(taken.err.contains("kitchen"), "{}", taken.err);
    assert!(wrong.err.contains("my-agent"), "{}", wrong.err);
    assert!(no_checkout.err.contains("crates/everturn"), "{}", no_checkout.err);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
