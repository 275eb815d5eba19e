//! Skills: finding them, telling the model about them, looking them up.

use std::fs;
use std::path::Path;

use everturn_ai::builtin_middleware::{Skills, register_builtin_middleware};
use everturn_ai::{Generate, Message, MiddlewareRef, Part, Role};
use everturn_core::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::middleware_support::{Reply, Script, run_rounds};

const SOUP: &str = "---\nname: soup\ndescription: How to make soup.\n---\nBoil it.\n";

fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn library(skills: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().unwrap();
    for (folder, content) in skills {
        write(root.path(), &format!("{folder}/SKILL.md"), content);
    }
    root
}

/// The marked part of the system prompt, and the names of the tools, that a model gets.
async fn received(skills: Skills) -> (Option<String>, Vec<String>) {
    let registry = Registry::new();
    let script = Script::register(&registry, "m", [Reply::text("done")]);
    Generate::new(&registry)
        .model("m")
        .prompt("go")
        .use_middleware(skills)
        .run()
        .await
        .unwrap();

    let request = script.requests().remove(0);
    let is_marked = |part: &&Part| part.metadata_entry("skills-instructions") == Some(&Value::Bool(true));
    let system = request
        .messages
        .iter()
        .filter(|message| message.role() == Role::System);
    let part = system.flat_map(Message::content).find(is_marked);
    (
        part.and_then(Part::as_text).map(str::to_owned),
        request.tools().iter().map(|tool| tool.name.clone()).collect(),
    )
}

async fn use_skill(skills: Skills, name: &str) -> String {
    let rounds = run_rounds(skills, [&[("use_skill", json!({ "skillName": name }))]])
        .await
        .unwrap();
    rounds[0].answer().to_owned()
}

#[tokio::test]
async fn skills_are_listed_by_name_in_a_marked_part() {
    let root = library(&[
        ("zebra", "Stripes."),
        ("a-folder", SOUP),
        ("bread", "---\ndescription: >\n  Two\n  lines.\n---\n"),
    ]);

    let (text, tools) = received(Skills::new([root.path()])).await;

    let text = text.unwrap();
    assert!(
        text.starts_with("<skills>\n") && text.ends_with("</skills>"),
        "{text}"
    );
    assert!(
        text.contains("\n - bread - Two lines.\n - soup - How to make soup.\n - zebra\n"),
        "{text}"
    );
    assert_eq!(tools, ["use_skill"]);
}

#[tokio::test]
async fn only_plain_direct_subfolders_with_a_skill_file_count() {
    let root = library(&[("soup", SOUP), (".hidden", SOUP), ("deep/inner", SOUP)]);
    write(root.path(), "SKILL.md", SOUP);
    write(root.path(), "no-skill/README.md", "no");
    write(root.path(), "lower-case/skill.md", "no");
    let elsewhere = library(&[("linked", "no")]);
    std::os::unix::fs::symlink(elsewhere.path().join("linked"), root.path().join("linked")).unwrap();

    let (text, _) = received(Skills::new([root.path()])).await;

    assert_eq!(text.unwrap().matches("\n - ").count(), 1);
}

#[tokio::test]
async fn without_skills_the_model_gets_neither_list_nor_tool() {
    let empty = TempDir::new().unwrap();

    for skills in [
        Skills::new([empty.path()]),
        Skills::new([empty.path().join("missing")]),
        Skills::default(),
    ] {
        assert_eq!(received(skills).await, (None, vec![]));
    }
}

#[tokio::test]
async fn of_two_skills_with_one_name_the_later_path_counts() {
    let first = library(&[("soup", "---\ndescription: old\n---\n")]);
    let second = library(&[("soup", "---\ndescription: new\n---\n")]);

    let (text, _) = received(Skills::new([first.path(), second.path()])).await;

    assert!(text.unwrap().contains(" - soup - new\n"));
}

#[tokio::test]
async fn the_list_goes_to_the_end_of_the_system_prompt_and_is_there_once() {
    let root = library(&[("soup", SOUP)]);
    let registry = Registry::new();
    let calls = Reply::calls(&[("use_skill", json!({ "skillName": "soup" }))]);
    let script = Script::register(&registry, "m", [calls, Reply::text("done")]);

    Generate::new(&registry)
        .model("m")
        .system("You cook.")
        .prompt("go")
        .use_middleware(Skills::new([root.path()]))
        .run()
        .await
        .unwrap();

    let second = script.requests().pop().unwrap();
    let system = second.messages.first().unwrap();
    assert_eq!(system.content().len(), 2);
    assert_eq!(system.content()[0].as_text(), Some("You cook."));
    assert_eq!(
        second
            .messages
            .iter()
            .filter(|message| message.role() == Role::System)
            .count(),
        1
    );
}

#[tokio::test]
async fn the_text_of_a_skill_is_found_by_name_or_folder() {
    let root = library(&[("a-folder", SOUP)]);

    for name in ["soup", "a-folder"] {
        assert_eq!(use_skill(Skills::new([root.path()]), name).await, SOUP);
    }
}

#[tokio::test]
async fn a_missing_skill_is_reported_to_the_model() {
    let root = library(&[("soup", SOUP), ("bread", "")]);

    let answer = use_skill(Skills::new([root.path()]), "cake").await;

    assert!(
        answer.contains("no skill 'cake'") && answer.contains("bread, soup"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_skill_cannot_be_read_from_outside_its_folder() {
    let root = library(&[("soup", SOUP)]);
    write(root.path(), "secret.md", "secret");
    write(root.path(), "sly/other.md", "");
    std::os::unix::fs::symlink("../secret.md", root.path().join("sly/SKILL.md")).unwrap();

    let (text, _) = received(Skills::new([root.path()])).await;
    assert!(!text.unwrap().contains("sly"));

    for name in [
        "sly",
        "..",
        "../secret.md",
        ".",
        "soup/../sly",
        root.path().to_str().unwrap(),
    ] {
        let answer = use_skill(Skills::new([root.path()]), name).await;

        assert!(answer.starts_with("There is no skill"), "{answer}");
    }
}

#[tokio::test]
async fn skills_that_cannot_be_read_are_left_out() {
    let root = library(&[("soup", SOUP), ("broken", "---\nname: [\n---\n")]);
    write(root.path(), "huge/SKILL.md", vec![b'x'; 1024 * 1024 + 1]);
    write(root.path(), "binary/SKILL.md", [0xff, 0xfe]);
    fs::create_dir_all(root.path().join("directory/SKILL.md")).unwrap();

    let (text, _) = received(Skills::new([root.path()])).await;

    let text = text.unwrap();
    assert!(
        text.contains("\n - broken\n - soup - How to make soup.\n</skills>"),
        "{text}"
    );
}

#[tokio::test]
async fn by_name_the_paths_are_configuration() {
    let root = library(&[("soup", SOUP)]);
    let registry = Registry::new();
    register_builtin_middleware(&registry).unwrap();
    let script = Script::register(&registry, "m", [Reply::text("done")]);

    Generate::new(&registry)
        .model("m")
        .prompt("go")
        .use_middleware(MiddlewareRef::new("skills").with_config(json!({ "skillPaths": [root.path()] })))
        .run()
        .await
        .unwrap();

    assert!(
        script.requests()[0]
            .messages
            .first()
            .unwrap()
            .text()
            .contains("soup")
    );
}
