//! The contents of files reach the model as messages, and the tools work beside others.

use std::fs;
use std::sync::{Arc, Mutex};

use everturn_ai::builtin_middleware::{Filesystem, ToolApproval};
use everturn_ai::{
    FinishReason, Generate, Message, ModelResponseChunk, Part, Role, Tool, ToolContext, generate_hook,
    tool_hook,
};
use everturn_core::{Emitter, Error, Registry, Status};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::middleware_support::{Reply, Script, run_rounds};

fn root() -> TempDir {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("a.txt"), "A").unwrap();
    fs::write(root.path().join("b.txt"), "B").unwrap();
    root
}

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({ "filePath": path }))
}

#[tokio::test]
async fn contents_follow_the_answers_in_the_order_of_the_calls() {
    let root = root();
    let calls: Vec<(&str, Value)> = ["b.txt", "a.txt", "missing.txt"].map(read).into();

    let rounds = run_rounds(Filesystem::new(root.path()), [&calls]).await.unwrap();

    let shown: Vec<&str> = rounds[0].shown.iter().filter_map(Part::as_text).collect();
    assert_eq!(shown.len(), 2);
    assert!(
        shown[0].contains("b.txt") && shown[1].contains("a.txt"),
        "{shown:?}"
    );
}

#[tokio::test]
async fn contents_are_streamed_as_a_message_of_their_own() {
    let root = root();
    let registry = Registry::new();
    let first = Reply::calls(&[read("a.txt")]).after_chunks(["reading"]);
    Script::register(
        &registry,
        "m",
        [first, Reply::text("done").after_chunks(["done"])],
    );
    let streamed = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&streamed);

    Generate::new(&registry)
        .model("m")
        .prompt("go")
        .use_middleware(Filesystem::new(root.path()))
        .emitter(Emitter::new(move |chunk: ModelResponseChunk| {
            sink.lock().unwrap().push((chunk.role, chunk.index));
            async { Ok(()) }
        }))
        .run()
        .await
        .unwrap();

    let expected = [
        (Role::Model, 0),
        (Role::Tool, 1),
        (Role::User, 2),
        (Role::Model, 3),
    ];
    assert_eq!(
        *streamed.lock().unwrap(),
        expected.map(|(role, index)| (Some(role), Some(index)))
    );
}

#[tokio::test]
async fn contents_stay_in_the_conversation() {
    let root = root();
    let registry = Registry::new();
    Script::register(
        &registry,
        "m",
        [Reply::calls(&[read("a.txt")]), Reply::text("done")],
    );

    let answer = Generate::new(&registry)
        .model("m")
        .prompt("go")
        .use_middleware(Filesystem::new(root.path()))
        .run()
        .await
        .unwrap();

    let roles: Vec<Role> = answer.messages().iter().map(Message::role).collect();
    assert_eq!(
        roles,
        [Role::User, Role::Model, Role::Tool, Role::User, Role::Model]
    );
}

#[tokio::test]
async fn a_round_that_is_run_again_shows_the_contents_again() {
    let root = root();
    let registry = Registry::new();
    let script = Script::register(
        &registry,
        "m",
        [
            Reply::calls(&[read("a.txt")]),
            Reply::error(Error::unavailable("busy")),
            Reply::text("done"),
        ],
    );
    let patience = generate_hook(|round, next| async move {
        match next.run(round.clone()).await {
            Err(_) if round.index == 1 => Ok(next.run(round).await?),
            result => Ok(result?),
        }
    });

    Generate::new(&registry)
        .model("m")
        .prompt("go")
        .use_middleware(patience)
        .use_middleware(Filesystem::new(root.path()))
        .run()
        .await
        .unwrap();

    let requests = script.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[1].messages, requests[2].messages);
    assert!(requests[2].messages.last().unwrap().text().contains("\nA\n"));
}

#[tokio::test]
async fn contents_read_beside_an_interrupted_tool_are_shown_after_the_resume() {
    let root = root();
    let registry = Registry::new();
    let calls = [read("a.txt"), ("launch", json!({}))];
    let script = Script::register(&registry, "m", [Reply::calls(&calls), Reply::text("done")]);
    let launch = Tool::new("launch", "Launches.", |_: Value, _: ToolContext| async {
        Ok("launched")
    });
    let generate = || {
        Generate::new(&registry)
            .model("m")
            .tool(&launch)
            .use_middleware(ToolApproval::new(["read_file"]))
            .use_middleware(Filesystem::new(root.path()))
    };

    let held = generate().prompt("go").run().await.unwrap();
    assert_eq!(held.finish_reason(), FinishReason::Interrupted);
    let approved = ToolApproval::approve(held.interrupts().next().unwrap()).unwrap();
    generate()
        .messages(held.messages())
        .restart(approved)
        .run()
        .await
        .unwrap();

    let last = script.requests().pop().unwrap().messages;
    assert_eq!(last.last().unwrap().role(), Role::User);
    assert!(last.last().unwrap().text().contains("\nA\n"), "{last:?}");
}

#[tokio::test]
async fn prefixes_distinguish_two_directories() {
    let (one, other) = (root(), root());
    fs::write(other.path().join("a.txt"), "other A").unwrap();
    let registry = Registry::new();
    let calls = [
        ("x_read_file", json!({ "filePath": "a.txt" })),
        ("y_read_file", json!({ "filePath": "a.txt" })),
    ];
    let script = Script::register(&registry, "m", [Reply::calls(&calls), Reply::text("done")]);

    Generate::new(&registry)
        .model("m")
        .prompt("go")
        .use_middleware(Filesystem::new(one.path()).tool_name_prefix("x_"))
        .use_middleware(Filesystem::new(other.path()).tool_name_prefix("y_"))
        .run()
        .await
        .unwrap();

    let messages = script.requests().pop().unwrap().messages;
    let text: String = messages
        .iter()
        .skip(3)
        .map(|message| message.text().into_owned())
        .collect();
    assert!(text.contains("\nA\n") && text.contains("\nother A\n"), "{text}");
}

#[tokio::test]
async fn two_directories_with_one_prefix_clash() {
    let root = root();
    let registry = Registry::new();
    Script::register(&registry, "m", [Reply::text("unused")]);

    let error = Generate::new(&registry)
        .model("m")
        .prompt("go")
        .use_middleware(Filesystem::new(root.path()))
        .use_middleware(Filesystem::new(root.path()))
        .run()
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn failures_of_other_tools_and_interrupts_pass_through() {
    let root = root();
    let registry = Registry::new();
    let replies = || [Reply::calls(&[("explode", json!({}))]), Reply::text("unused")];
    Script::register(&registry, "m", replies());
    let explode = Tool::new("explode", "Fails.", |_: Value, _: ToolContext| async {
        Err::<Value, _>(Error::unavailable("boom").into())
    });

    let failed = Generate::new(&registry)
        .model("m")
        .prompt("go")
        .tool(explode)
        .use_middleware(Filesystem::new(root.path()))
        .run()
        .await;

    assert!(failed.unwrap_err().message().contains("boom"));

    let registry = Registry::new();
    Script::register(
        &registry,
        "m",
        [Reply::calls(&[read("a.txt")]), Reply::text("unused")],
    );
    let held = Generate::new(&registry)
        .model("m")
        .prompt("go")
        .use_middleware(Filesystem::new(root.path()))
        .use_middleware(tool_hook(|_, _| async {
            Err(everturn_ai::interrupt("may I?").into())
        }))
        .run()
        .await
        .unwrap();

    assert_eq!(held.finish_reason(), FinishReason::Interrupted);
}

#[tokio::test]
async fn a_root_that_is_not_a_directory_fails_before_the_model_is_asked() {
    let root = root();
    for wrong in [root.path().join("missing"), root.path().join("a.txt"), "".into()] {
        let registry = Registry::new();
        let script = Script::register(&registry, "m", [Reply::text("unused")]);

        let error = Generate::new(&registry)
            .model("m")
            .prompt("go")
            .use_middleware(Filesystem::new(wrong))
            .run()
            .await
            .unwrap_err();

        assert_eq!(error.status(), Status::InvalidArgument);
        assert_eq!(script.calls(), 0);
    }
}
