//! Listing and reading files.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use everturn_ai::Part;
use everturn_ai::builtin_middleware::Filesystem;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::middleware_support;
use crate::middleware_support::{Round, run_rounds};

fn root(files: &[(&str, &[u8])]) -> TempDir {
    let root = TempDir::new().unwrap();
    for (name, content) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

async fn call(root: &Path, tool: &str, input: Value) -> Round {
    run_rounds(Filesystem::new(root), [&[(tool, input)]])
        .await
        .unwrap()
        .remove(0)
}

async fn read(root: &TempDir, input: Value) -> Round {
    call(root.path(), "read_file", input).await
}

#[tokio::test]
async fn a_listing_has_names_kinds_and_sizes_in_order() {
    let root = root(&[("b.txt", b"four"), ("a/deep/c.txt", b"x"), ("a.txt", b"")]);

    let flat = call(root.path(), "list_files", json!({})).await;
    let deep = call(
        root.path(),
        "list_files",
        json!({ "dirPath": "a", "recursive": true }),
    )
    .await;

    assert_eq!(
        flat.outputs[0],
        json!([
            { "path": "a", "isDirectory": true },
            { "path": "a.txt", "isDirectory": false, "sizeBytes": 0 },
            { "path": "b.txt", "isDirectory": false, "sizeBytes": 4 },
        ])
    );
    assert_eq!(
        deep.outputs[0],
        json!([
            { "path": "deep", "isDirectory": true },
            { "path": "deep/c.txt", "isDirectory": false, "sizeBytes": 1 },
        ])
    );
}

#[tokio::test]
async fn listing_a_path_that_is_not_a_directory_fails() {
    let root = root(&[("a.txt", b"")]);

    for path in ["missing", "a.txt"] {
        let round = call(root.path(), "list_files", json!({ "dirPath": path })).await;

        assert!(round.answer().contains(path), "{round:?}");
    }
}

#[tokio::test]
async fn a_listing_that_is_too_long_is_refused() {
    let root = TempDir::new().unwrap();
    for n in 0..=10_000 {
        fs::File::create(root.path().join(n.to_string())).unwrap();
    }

    let refused = call(root.path(), "list_files", json!({})).await;
    fs::remove_file(root.path().join("0")).unwrap();
    let listed = call(root.path(), "list_files", json!({})).await;

    assert!(refused.answer().contains("10000"), "{}", refused.answer());
    assert_eq!(listed.outputs[0].as_array().unwrap().len(), 10_000);
}

#[tokio::test]
async fn a_text_file_is_shown_in_an_element_after_the_answer() {
    let root = root(&[("notes/a.txt", b"one\ntwo\n")]);

    let round = read(&root, json!({ "filePath": "notes/a.txt" })).await;

    assert!(!round.answer().contains("one"));
    assert_eq!(
        round.shown,
        [Part::text(
            "<read_file path=\"notes/a.txt\" totalLines=\"2\">\none\ntwo\n</read_file>"
        )]
    );
}

#[tokio::test]
async fn some_lines_of_a_file_can_be_read() {
    let root = root(&[("a.txt", b"one\ntwo\nthree\nfour")]);

    let middle = read(&root, json!({ "filePath": "a.txt", "offset": 2, "limit": 2 })).await;
    let end = read(&root, json!({ "filePath": "a.txt", "offset": 4 })).await;

    assert!(
        middle
            .shown_text()
            .contains("lines=\"2-3\" totalLines=\"4\">\ntwo\nthree\n</read_file>"),
        "{middle:?}"
    );
    assert!(
        end.shown_text()
            .contains("lines=\"4-4\" totalLines=\"4\">\nfour\n</read_file>"),
        "{end:?}"
    );
}

#[tokio::test]
async fn lines_past_the_end_are_an_error_that_reports_the_number_of_lines() {
    let root = root(&[("a.txt", b"one\ntwo\n"), ("empty.txt", b"")]);

    let past = read(&root, json!({ "filePath": "a.txt", "offset": 3 })).await;
    let empty = read(&root, json!({ "filePath": "empty.txt", "offset": 1 })).await;

    assert!(past.answer().contains("2 lines"), "{past:?}");
    assert!(empty.shown_text().contains("totalLines=\"0\""), "{empty:?}");
}

#[tokio::test]
async fn a_path_cannot_break_out_of_its_attribute() {
    let name = "a\"><b&.txt";
    let root = root(&[(name, b"x")]);

    let round = read(&root, json!({ "filePath": name })).await;

    assert!(
        round
            .shown_text()
            .starts_with("<read_file path=\"a&quot;>&lt;b&amp;.txt\" "),
        "{round:?}"
    );
}

#[tokio::test]
async fn an_image_is_shown_as_media() {
    let root = root(&[("cat.PNG", &[0x89, b'P', b'N', b'G'])]);

    let round = read(&root, json!({ "filePath": "cat.PNG" })).await;

    assert!(round.shown[0].as_text().unwrap().contains("cat.PNG"));
    let media = round.shown[1].as_media().unwrap();
    assert_eq!(media.content_type.as_deref(), Some("image/png"));
    assert_eq!(media.url, "data:image/png;base64,iVBORw==");
}

#[tokio::test]
async fn a_binary_file_is_refused() {
    let root = root(&[("invalid.bin", &[0xff, 0xfe, 0x00]), ("zeros.bin", &[0; 16])]);

    for name in ["invalid.bin", "zeros.bin"] {
        let round = read(&root, json!({ "filePath": name })).await;

        assert!(round.answer().contains("not a text file"), "{round:?}");
        assert!(round.shown.is_empty());
    }
}

#[tokio::test]
async fn missing_files_and_directories_are_refused() {
    let root = root(&[("docs/a.txt", b"")]);

    assert!(
        read(&root, json!({ "filePath": "missing.txt" }))
            .await
            .answer()
            .contains("no file 'missing.txt'")
    );
    assert!(
        read(&root, json!({ "filePath": "docs" }))
            .await
            .answer()
            .contains("is a directory")
    );
    assert!(
        read(&root, json!({ "filePath": "docs/a.txt/b" }))
            .await
            .answer()
            .contains("failed")
    );
}

#[tokio::test]
async fn one_read_shows_at_most_256_kib() {
    const LIMIT: usize = 256 * 1024;
    let line = format!("{}\n", "x".repeat(1023));
    let fits = line.repeat(LIMIT / 1024);
    let root = root(&[
        ("fits.txt", fits.as_bytes()),
        ("large.txt", format!("{fits}.").as_bytes()),
    ]);

    let whole = read(&root, json!({ "filePath": "fits.txt" })).await;
    let too_large = read(&root, json!({ "filePath": "large.txt" })).await;
    let too_many_lines = read(&root, json!({ "filePath": "large.txt", "limit": 1000 })).await;
    let some_lines = read(
        &root,
        json!({ "filePath": "large.txt", "offset": 2, "limit": 256 }),
    )
    .await;

    assert!(whole.shown_text().len() > LIMIT);
    assert!(
        too_large.answer().contains("`offset` and `limit`"),
        "{too_large:?}"
    );
    assert!(
        too_many_lines.answer().contains("fewer lines"),
        "{}",
        too_many_lines.answer()
    );
    assert!(
        some_lines
            .shown_text()
            .contains("lines=\"2-257\" totalLines=\"257\"")
    );
}

#[tokio::test]
async fn a_file_over_10_mib_is_not_opened_at_all() {
    let root = root(&[("a.txt", b""), ("a.png", b"")]);
    for name in ["a.txt", "a.png"] {
        fs::File::options()
            .write(true)
            .open(root.path().join(name))
            .unwrap()
            .set_len(10 * 1024 * 1024 + 1)
            .unwrap();

        let round = read(&root, json!({ "filePath": name, "offset": 1, "limit": 1 })).await;

        assert!(round.answer().contains("10485760"), "{round:?}");
    }
}

#[tokio::test]
async fn reading_the_same_lines_of_an_unchanged_file_again_gives_a_note() {
    let root = root(&[("a.txt", b"one\ntwo\n")]);
    let whole = ("read_file", json!({ "filePath": "a.txt" }));
    let same = ("read_file", json!({ "filePath": "./a.txt", "offset": 1 }));
    let other = ("read_file", json!({ "filePath": "a.txt", "limit": 1 }));

    let rounds = run_rounds(Filesystem::new(root.path()), [&[whole], &[same], &[other]])
        .await
        .unwrap();

    assert!(rounds[0].shown_text().contains("one\ntwo"));
    assert!(rounds[1].shown.is_empty());
    assert!(rounds[1].answer().contains("has not changed"));
    assert!(rounds[2].shown_text().contains("one\n</read_file>"));
}

#[tokio::test]
async fn every_generate_call_starts_without_having_seen_anything() {
    let root = root(&[("a.txt", b"one")]);
    let middleware = Filesystem::new(root.path());
    let input = json!({ "filePath": "a.txt" });

    for _ in 0..2 {
        let rounds = run_rounds(middleware.clone(), [&[("read_file", input.clone())]])
            .await
            .unwrap();

        assert!(rounds[0].shown_text().contains("one"));
    }
}

#[tokio::test]
async fn a_file_that_changed_is_shown_again() {
    use everturn_ai::generate_hook;
    use everturn_ai::{Generate, Role};
    use everturn_core::Registry;
    use middleware_support::{Reply, Script};

    let root = root(&[("a.txt", b"old")]);
    let file = root.path().join("a.txt");
    let registry = Registry::new();
    let calls = || Reply::calls(&[("read_file", json!({ "filePath": "a.txt" }))]);
    let script = Script::register(&registry, "m", [calls(), calls(), Reply::text("done")]);
    let somebody_else = generate_hook(move |round, next| {
        if round.index == 1 {
            fs::write(&file, "new").unwrap();
            let later = SystemTime::now() + Duration::from_secs(10);
            fs::File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(later)
                .unwrap();
        }
        async move { Ok(next.run(round).await?) }
    });

    Generate::new(&registry)
        .model("m")
        .prompt("go")
        .use_middleware(Filesystem::new(root.path()))
        .use_middleware(somebody_else)
        .run()
        .await
        .unwrap();

    let last = script.requests().pop().unwrap();
    let shown = last
        .messages
        .iter()
        .rfind(|message| message.role() == Role::User)
        .unwrap();
    assert!(shown.text().contains("\nnew\n"), "{shown:?}");
}
