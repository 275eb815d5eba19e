//! The session's artifacts as the model's tools.

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, Artifacts, agent};
use everturn_ai::{Generate, Part};
use everturn_core::Registry;
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

fn writer(middleware: Artifacts, script: &ScriptedModel) -> Agent {
    let registry = Registry::new();
    script.register(&registry, "scripted").unwrap();
    agent(&registry, "writer")
        .model("scripted")
        .system("You write.")
        .use_middleware(middleware)
        .store(MemoryStore::new())
        .define()
        .unwrap()
}

fn told(script: &ScriptedModel, call: usize) -> Value {
    let message = script.requests()[call].messages.last().unwrap().clone();
    let mut outputs = message.content().iter().filter_map(Part::as_tool_response);
    outputs.next().unwrap().output.clone().unwrap()
}

#[tokio::test]
async fn artifacts_written_by_the_model_are_kept_streamed_listed_and_read() {
    let script = ScriptedModel::new()
        .reply(Reply::tool(
            "write_artifact",
            json!({"name": "poem", "content": "roses"}),
        ))
        .reply(Reply::tool("read_artifact", json!({"name": "poem"})))
        .reply("done");
    let writer = writer(Artifacts::default(), &script);
    let mut chat = writer.chat().open().await.unwrap();
    let mut turn = chat.send("write").await.unwrap();

    let mut streamed = Vec::new();
    while let Some(chunk) = turn.next().await {
        streamed.extend(
            chunk
                .unwrap()
                .artifact()
                .and_then(|artifact| artifact.name.clone()),
        );
    }
    let reply = turn.output().await.unwrap();

    assert_eq!(streamed, ["poem"]);
    assert_eq!(reply.artifacts()[0].content_text(), "roses");
    assert_eq!(
        told(&script, 2),
        json!({"name": "poem", "content": "roses", "found": true})
    );
    let system = script.requests()[1].messages.first().unwrap().text().into_owned();
    assert!(system.contains("poem (5 chars)"), "{system}");
}

#[tokio::test]
async fn a_reader_cannot_write_and_a_missing_artifact_is_an_answer() {
    let script = ScriptedModel::new()
        .reply(Reply::tool("read_artifact", json!({"name": "poem"})))
        .reply("done");
    let writer = writer(Artifacts::readonly(), &script);

    writer.run_text("read").await.unwrap();

    let tools: Vec<String> = script.requests()[0]
        .tools()
        .iter()
        .map(|tool| tool.name.clone())
        .collect();
    assert_eq!(tools, ["read_artifact"]);
    assert_eq!(told(&script, 1)["found"], false);
}

#[tokio::test]
async fn outside_a_session_writing_says_so() {
    let registry = Registry::new();
    let script = ScriptedModel::new()
        .reply(Reply::tool(
            "write_artifact",
            json!({"name": "poem", "content": "roses"}),
        ))
        .reply("done");
    script.register(&registry, "scripted").unwrap();

    Generate::new(&registry)
        .model("scripted")
        .prompt("write")
        .use_middleware(Artifacts::default())
        .await
        .unwrap();

    assert_eq!(
        told(&script, 1)["status"],
        "There is no session to keep artifacts in."
    );
}
