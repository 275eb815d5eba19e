//! Writing and editing files.

use std::fs;
use std::time::{Duration, SystemTime};

use everturn_ai::builtin_middleware::Filesystem;
use everturn_ai::{Generate, generate_hook};
use everturn_core::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::middleware_support::{Reply, Round, Script, run_rounds};

struct Root(TempDir);

impl Root {
    fn with(content: &str) -> Self {
        let root = TempDir::new().unwrap();
        fs::write(root.path().join("a.txt"), content).unwrap();
        Self(root)
    }

    fn content(&self) -> String {
        fs::read_to_string(self.0.path().join("a.txt")).unwrap()
    }

    async fn run<const N: usize>(&self, rounds: [&[(&str, Value)]; N]) -> Vec<Round> {
        run_rounds(Filesystem::new(self.0.path()).allow_write(), rounds)
            .await
            .unwrap()
    }

    /// The answer of a tool after the file was read.
    async fn read_and(&self, tool: &str, input: Value) -> String {
        let rounds = self.run([&[read()], &[(tool, input)]]).await;
        rounds[1].answer().to_owned()
    }
}

fn read() -> (&'static str, Value) {
    ("read_file", json!({ "filePath": "a.txt" }))
}

fn write(content: &str) -> (&'static str, Value) {
    ("write_file", json!({ "filePath": "a.txt", "content": content }))
}

fn edits(edits: &[(&str, &str)]) -> Value {
    let edits: Vec<Value> = edits
        .iter()
        .map(|(old, new)| json!({ "oldString": old, "newString": new }))
        .collect();
    json!({ "filePath": "a.txt", "edits": edits })
}

#[tokio::test]
async fn writing_tools_exist_only_if_allowed() {
    let root = Root::with("old");
    let registry = Registry::new();
    let script = Script::register(&registry, "m", [Reply::text("a"), Reply::text("b")]);
    let names = |call: usize| -> Vec<String> {
        script.requests()[call]
            .tools()
            .iter()
            .map(|tool| tool.name.clone())
            .collect()
    };

    for middleware in [
        Filesystem::new(root.0.path()),
        Filesystem::new(root.0.path()).allow_write(),
    ] {
        Generate::new(&registry)
            .model("m")
            .prompt("go")
            .use_middleware(middleware)
            .run()
            .await
            .unwrap();
    }

    assert_eq!(names(0), ["list_files", "read_file"]);
    assert_eq!(
        names(1),
        [
            "list_files",
            "read_file",
            "write_file",
            "edit_file",
            "search_and_replace"
        ]
    );
}

#[tokio::test]
async fn a_new_file_is_made_with_its_directories() {
    let root = Root::with("");

    let rounds = root
        .run([&[(
            "write_file",
            json!({ "filePath": "new/deep/b.txt", "content": "hello" }),
        )]])
        .await;

    assert!(rounds[0].answer().starts_with("Created"), "{rounds:?}");
    assert_eq!(
        fs::read_to_string(root.0.path().join("new/deep/b.txt")).unwrap(),
        "hello"
    );
}

#[tokio::test]
async fn a_file_that_was_not_read_is_not_changed() {
    let block = "<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE";
    for call in [
        write("new"),
        ("edit_file", edits(&[("old", "new")])),
        (
            "search_and_replace",
            json!({ "filePath": "a.txt", "edits": [block] }),
        ),
    ] {
        let root = Root::with("old");

        let rounds = root.run([&[call]]).await;

        assert!(rounds[0].answer().contains("has not been read"), "{rounds:?}");
        assert_eq!(root.content(), "old");
    }
}

#[tokio::test]
async fn a_file_that_was_read_can_be_replaced_again_and_again() {
    let root = Root::with("a longer text");

    let rounds = root.run([&[read()], &[write("short")], &[write("other")]]).await;

    assert!(rounds[2].answer().starts_with("Replaced"), "{rounds:?}");
    assert_eq!(root.content(), "other");
}

#[tokio::test]
async fn written_content_is_shown_when_it_is_read() {
    let root = Root::with("old");

    let rounds = root.run([&[read()], &[write("new")], &[read()]]).await;

    assert!(rounds[2].shown_text().contains("\nnew\n"), "{rounds:?}");
}

/// The answer to the model that writes a file which `change` changed after it was read.
async fn write_after(change: impl Fn(&fs::File) + Send + Sync + 'static) -> (Root, String) {
    let root = Root::with("old");
    let file = root.0.path().join("a.txt");
    let registry = Registry::new();
    let calls = |call| Reply::calls(&[call]);
    let script = Script::register(
        &registry,
        "m",
        [calls(read()), calls(write("new")), Reply::text("done")],
    );
    let somebody_else = generate_hook(move |round, next| {
        if round.index == 1 {
            change(&fs::File::options().write(true).open(&file).unwrap());
        }
        async move { Ok(next.run(round).await?) }
    });

    Generate::new(&registry)
        .model("m")
        .prompt("go")
        .use_middleware(Filesystem::new(root.0.path()).allow_write())
        .use_middleware(somebody_else)
        .run()
        .await
        .unwrap();

    let messages = script.requests().pop().unwrap().messages;
    let answer = messages.last().unwrap().content()[0]
        .as_tool_response()
        .unwrap()
        .output
        .clone()
        .unwrap();
    (root, answer.as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_file_that_somebody_else_changed_is_not_overwritten() {
    let (_, touched) = write_after(|file| {
        file.set_modified(SystemTime::now() + Duration::from_secs(10))
            .unwrap();
    })
    .await;
    let (grown, answer) = write_after(|file| {
        let modified = file.metadata().unwrap().modified().unwrap();
        file.set_len(10).unwrap();
        file.set_modified(modified).unwrap();
    })
    .await;

    assert!(touched.contains("has changed"), "{touched}");
    assert!(answer.contains("has changed"), "{answer}");
    assert!(grown.content().starts_with("old"));
}

#[tokio::test]
async fn an_unchanged_file_is_written() {
    let (root, answer) = write_after(|_| {}).await;

    assert!(answer.starts_with("Replaced"), "{answer}");
    assert_eq!(root.content(), "new");
}

#[tokio::test]
async fn edits_are_made_one_after_the_other() {
    let root = Root::with("one two");

    root.read_and("edit_file", edits(&[("one", "three"), ("three two", "four")]))
        .await;

    assert_eq!(root.content(), "four");
}

#[tokio::test]
async fn either_all_edits_are_made_or_none() {
    let root = Root::with("one two");

    let answer = root
        .read_and("edit_file", edits(&[("one", "1"), ("three", "3")]))
        .await;

    assert!(answer.contains("edit 2"), "{answer}");
    assert_eq!(root.content(), "one two");
}

#[tokio::test]
async fn an_edit_must_match_once_unless_all_are_meant() {
    let root = Root::with("a a");
    let all =
        json!({ "filePath": "a.txt", "edits": [{ "oldString": "a", "newString": "b", "replaceAll": true }] });

    let ambiguous = root.read_and("edit_file", edits(&[("a", "b")])).await;
    assert!(ambiguous.contains("2 times"), "{ambiguous}");
    assert_eq!(root.content(), "a a");

    root.read_and("edit_file", all).await;
    assert_eq!(root.content(), "b b");
}

#[tokio::test]
async fn blocks_replace_the_first_match() {
    let root = Root::with("a\nb\na\n");
    let block = |search: &str, replace: &str| {
        format!("<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE")
    };

    root.read_and(
        "search_and_replace",
        json!({ "filePath": "a.txt", "edits": [block("a", "c"), block("b", "d")] }),
    )
    .await;

    assert_eq!(root.content(), "c\nd\na\n");
}

#[tokio::test]
async fn edits_of_one_round_do_not_lose_one_another() {
    let root = Root::with("0 1 2 3 4 5 6 7 8 9");
    let calls: Vec<(&str, Value)> = (0..10)
        .map(|digit| {
            (
                "edit_file",
                edits(&[(&format!("{digit}"), &format!("<{}>", "x".repeat(digit)))]),
            )
        })
        .collect();

    root.run([&[read()], &calls]).await;

    let expected: Vec<String> = (0..10).map(|digit| format!("<{}>", "x".repeat(digit))).collect();
    assert_eq!(root.content(), expected.join(" "));
}

#[tokio::test]
async fn a_failed_edit_reports_the_reason() {
    let root = Root::with("text");
    fs::write(root.0.path().join("binary"), [0xff]).unwrap();
    let edit = |path: &str| json!({ "filePath": path, "edits": [{ "oldString": "a", "newString": "b" }] });
    let calls: &[(&str, Value)] = &[
        ("edit_file", edit("missing")),
        ("edit_file", edit(".")),
        ("edit_file", json!({ "filePath": "a.txt", "edits": [] })),
        ("write_file", json!({ "filePath": ".", "content": "" })),
        ("write_file", json!({ "filePath": "a.txt/b", "content": "" })),
        ("write_file", json!({ "filePath": "a.txt" })),
    ];

    let rounds = root.run([calls]).await;

    for output in &rounds[0].outputs {
        assert!(output.as_str().unwrap().contains("failed"), "{output}");
    }
    assert_eq!(root.content(), "text");
}
