//! Nothing outside the root directory can be read, written or listed.

use std::fs;
use std::path::{Path, PathBuf};

use everturn_ai::builtin_middleware::Filesystem;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::middleware_support::run_rounds;

const SECRET: &str = "the secret outside";

/// A root directory and a secret outside it.
struct Place {
    outside: TempDir,
}

impl Place {
    fn new() -> Self {
        let outside = TempDir::new().unwrap();
        fs::create_dir_all(outside.path().join("root/docs")).unwrap();
        fs::write(outside.path().join("root/docs/inside.txt"), "inside").unwrap();
        fs::write(outside.path().join("secret.txt"), SECRET).unwrap();
        fs::create_dir(outside.path().join("root-secrets")).unwrap();
        fs::write(outside.path().join("root-secrets/secret.txt"), SECRET).unwrap();
        Self { outside }
    }

    fn root(&self) -> PathBuf {
        self.outside.path().join("root")
    }

    fn link(&self, target: impl AsRef<Path>, name: &str) {
        std::os::unix::fs::symlink(target, self.root().join(name)).unwrap();
    }

    fn secrets_are_untouched(&self) -> bool {
        ["secret.txt", "root-secrets/secret.txt"]
            .iter()
            .all(|name| fs::read_to_string(self.outside.path().join(name)).unwrap() == SECRET)
    }

    /// Reads, lists and writes at a path, and gives everything that the model gets to see.
    async fn try_all(&self, file: &str, directory: &str) -> String {
        let edits = json!([{ "oldString": "secret", "newString": "known" }]);
        let block = "<<<<<<< SEARCH\nsecret\n=======\nknown\n>>>>>>> REPLACE";
        let calls: &[(&str, Value)] = &[
            ("read_file", json!({ "filePath": file })),
            ("list_files", json!({ "dirPath": directory, "recursive": true })),
            (
                "write_file",
                json!({ "filePath": file, "content": "overwritten" }),
            ),
            ("edit_file", json!({ "filePath": file, "edits": edits })),
            (
                "search_and_replace",
                json!({ "filePath": file, "edits": [block] }),
            ),
        ];

        let rounds = run_rounds(Filesystem::new(self.root()).allow_write(), [calls])
            .await
            .unwrap();

        let round = &rounds[0];
        for output in &round.outputs {
            assert!(
                output.as_str().is_some_and(|output| output.contains("failed")),
                "{output}"
            );
        }
        format!("{round:?}")
    }
}

#[tokio::test]
async fn dots_do_not_lead_out() {
    let place = Place::new();

    for (file, directory) in [
        ("../secret.txt", ".."),
        ("docs/../../secret.txt", "docs/../.."),
        ("../root-secrets/secret.txt", "../root-secrets"),
        ("./.././secret.txt", "./.."),
    ] {
        let seen = place.try_all(file, directory).await;

        assert!(!seen.contains(SECRET), "{seen}");
    }
    assert!(place.secrets_are_untouched());
}

#[tokio::test]
async fn absolute_paths_do_not_lead_out() {
    let place = Place::new();
    let outside = place.outside.path().to_str().unwrap();

    let seen = place.try_all(&format!("{outside}/secret.txt"), outside).await;

    assert!(!seen.contains(SECRET), "{seen}");
    assert!(place.secrets_are_untouched());
}

#[tokio::test]
async fn links_do_not_lead_out() {
    let place = Place::new();
    place.link("../secret.txt", "file-link");
    place.link(place.outside.path().join("secret.txt"), "absolute-file-link");
    place.link("..", "directory-link");
    place.link("file-link", "link-to-link");

    for (file, directory) in [
        ("file-link", "directory-link"),
        ("absolute-file-link", "directory-link/root-secrets"),
        ("directory-link/secret.txt", "docs/../directory-link"),
        ("link-to-link", "directory-link/root/directory-link"),
    ] {
        let seen = place.try_all(file, directory).await;

        assert!(!seen.contains(SECRET), "{seen}");
    }
    assert!(place.secrets_are_untouched());
}

#[tokio::test]
async fn a_new_file_is_not_made_through_a_link_that_leads_out() {
    let place = Place::new();
    place.link("../planted.txt", "dangling");
    place.link("..", "directory-link");
    let calls: &[(&str, Value)] = &[
        ("write_file", json!({ "filePath": "dangling", "content": "x" })),
        (
            "write_file",
            json!({ "filePath": "directory-link/planted.txt", "content": "x" }),
        ),
        (
            "write_file",
            json!({ "filePath": "directory-link/new/planted.txt", "content": "x" }),
        ),
        (
            "write_file",
            json!({ "filePath": "../planted.txt", "content": "x" }),
        ),
    ];

    let rounds = run_rounds(Filesystem::new(place.root()).allow_write(), [calls])
        .await
        .unwrap();

    assert!(
        rounds[0]
            .outputs
            .iter()
            .all(|output| output.as_str().unwrap().contains("failed"))
    );
    assert!(!place.outside.path().join("planted.txt").exists());
    assert!(!place.outside.path().join("new").exists());
}

#[tokio::test]
async fn a_recursive_listing_shows_links_and_does_not_follow_them() {
    let place = Place::new();
    place.link("..", "directory-link");
    place.link(".", "loop");

    let rounds = run_rounds(
        Filesystem::new(place.root()),
        [&[("list_files", json!({ "recursive": true }))]],
    )
    .await
    .unwrap();

    let entries = rounds[0].outputs[0].as_array().unwrap();
    let paths: Vec<&str> = entries
        .iter()
        .map(|entry| entry["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["directory-link", "docs", "docs/inside.txt", "loop"]);
    assert_eq!(entries[0]["isDirectory"], json!(false));
}

#[tokio::test]
async fn dots_and_links_that_stay_inside_work() {
    let place = Place::new();
    place.link("docs/inside.txt", "link");

    for path in ["docs/../docs/inside.txt", "./docs//inside.txt", "link"] {
        let rounds = run_rounds(
            Filesystem::new(place.root()),
            [&[("read_file", json!({ "filePath": path }))]],
        )
        .await
        .unwrap();

        assert!(rounds[0].shown_text().contains("\ninside\n"), "{:?}", rounds[0]);
    }
}

#[tokio::test]
async fn strange_names_are_errors_and_nothing_worse() {
    let place = Place::new();
    let long = "a/".repeat(5000);

    for path in [
        "",
        "   ",
        "a\0b",
        "\\..\\secret.txt",
        "~/secret.txt",
        long.as_str(),
        ".",
    ] {
        let rounds = run_rounds(
            Filesystem::new(place.root()),
            [&[("read_file", json!({ "filePath": path }))]],
        )
        .await
        .unwrap();

        assert!(rounds[0].answer().contains("failed"), "{path}: {:?}", rounds[0]);
    }
}

#[tokio::test]
async fn failures_do_not_reveal_the_root() {
    let place = Place::new();
    let outside = place.outside.path().to_str().unwrap();

    let seen = place.try_all("../secret.txt", "missing").await;

    assert!(!seen.contains(outside), "{seen}");
}

#[tokio::test]
async fn a_pipe_is_refused_without_waiting_for_its_other_end() {
    let place = Place::new();
    let made = std::process::Command::new("mkfifo")
        .arg(place.root().join("pipe"))
        .status()
        .unwrap();
    assert!(made.success());

    let seen = place.try_all("pipe", "pipe").await;

    assert!(seen.contains("not a regular file"), "{seen}");
}
