//! The prompt is rendered again every turn, once, with the live state.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::{AgentInit, Session, agent};
use everturn_ai::prompt::ContentSlot;
use everturn_ai::{NoInput, Tool, ToolContext};
use everturn_testkit::Reply;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::prompt_support::{answering, asked};

#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    mood: String,
}

fn cheer_up() -> Tool {
    Tool::new(
        "cheer_up",
        "Cheers the chef up.",
        |_: NoInput, _: ToolContext| async move {
            Session::<Kitchen>::current()
                .unwrap()
                .update_custom(|kitchen| kitchen.mood = "proud".into());
            Ok("done")
        },
    )
}

#[tokio::test]
async fn every_turn_sees_the_state_as_the_turn_found_it() {
    let (registry, model) = answering([
        Reply::tool("cheer_up", json!({})),
        "there".into(),
        "proud indeed".into(),
    ]);
    let agent = agent(&registry, "chef")
        .custom::<Kitchen>()
        .system("You are {{@custom.mood}}.")
        .tool(cheer_up())
        .define()
        .unwrap();
    let mut chat = agent
        .chat()
        .custom(Kitchen {
            mood: "sad".to_owned(),
        })
        .open()
        .await
        .unwrap();

    chat.run("cheer up").await.unwrap();
    chat.run("how are you?").await.unwrap();

    let systems: Vec<String> = model
        .requests()
        .iter()
        .map(|request| asked(request)[0].clone())
        .collect();
    assert_eq!(
        systems,
        [
            "system: You are sad.",
            "system: You are sad.",
            "system: You are proud."
        ]
    );
}

#[tokio::test]
async fn a_turn_renders_once_however_often_it_asks_the_model() {
    let (registry, _model) = answering([
        Reply::tool("cheer_up", json!({})),
        Reply::tool("cheer_up", json!({})),
        "there".into(),
        "again".into(),
    ]);
    let rendered = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&rendered);
    let system = ContentSlot::computed(move |_scope| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok("sys".into()) }
    });
    let agent = agent(&registry, "chef")
        .custom::<Kitchen>()
        .system(system)
        .tool(cheer_up())
        .define()
        .unwrap();

    let mut connection = agent.connect(AgentInit::default());
    for text in ["one", "two"] {
        connection.send(text).await.unwrap();
        while connection
            .receive()
            .next()
            .await
            .is_some_and(|chunk| chunk.turn_end.is_none())
        {}
    }
    connection.output().await.unwrap();

    assert_eq!(rendered.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_function_reaches_the_session_and_the_conversation() {
    let (registry, model) = answering(["soup"]);
    let system = ContentSlot::computed(|scope| async move {
        let mood = Session::<Kitchen>::of(&scope.context).unwrap().custom().mood;
        Ok(format!("{mood}, after {}", scope.conversation.len()).into())
    });
    let agent = agent(&registry, "chef")
        .custom::<Kitchen>()
        .system(system)
        .define()
        .unwrap();

    agent
        .chat()
        .custom(Kitchen {
            mood: "calm".to_owned(),
        })
        .run("leeks")
        .await
        .unwrap();

    assert_eq!(
        asked(&model.requests()[0]),
        ["system: calm, after 1", "user: leeks"]
    );
}

#[tokio::test]
async fn a_prompt_that_does_not_render_fails_the_turn_with_its_status() {
    let (registry, model) = answering(["soup"]);
    let system = ContentSlot::computed(|_scope| async {
        Err(everturn_core::Error::unavailable("the book is shut").into())
    });
    let agent = agent(&registry, "chef").system(system).define().unwrap();

    let failed = agent.run_text("leeks").await.unwrap_err();

    assert_eq!(failed.status(), everturn_core::Status::Unavailable);
    assert_eq!(failed.message(), "prompt render: the book is shut");
    model.assert_calls(0);
}
