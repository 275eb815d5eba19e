//! An agent that delegates tasks: an editor with a researcher and a poet.
//!
//! Each sub-agent is a tool of the editor's model. Its artifacts become part of the editor's session.

use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

#[tokio::main]
async fn main() -> Result<()> {
    let editor = ScriptedModel::new()
        .reply(Reply::tool(
            "delegate_to_researcher",
            json!({"task": "When is the season of leeks?"}),
        ))
        .reply(Reply::tool(
            "delegate_to_poet",
            json!({"task": "Two lines on leeks, which end in spring."}),
        ))
        .reply("The page on leeks is ready: the facts are checked, and the poem rhymes.");
    let poet = ScriptedModel::new()
        .reply(Reply::tool(
            "write_artifact",
            json!({"name": "poem.txt", "content": "Winter's green ring / hums until spring\n"}),
        ))
        .reply("It rhymes.");
    let app = Everturn::builder()
        .model("editor-model", editor)
        .model(
            "researcher-model",
            ScriptedModel::new().reply("From October to March."),
        )
        .model("poet-model", poet)
        .build()
        .await?;

    app.agent("researcher")
        .description("Knows where to look things up.")
        .model("researcher-model")
        .system("Answer in one sentence.")
        .define()?;
    app.agent("poet")
        .description("Writes short poems.")
        .model("poet-model")
        .system("Write what you are asked for.")
        .use_middleware(Artifacts::default())
        .define()?;
    let editor = app
        .agent("editor")
        .model("editor-model")
        .system("You make a magazine. You write nothing yourself.")
        .use_middleware(Delegation::to(["researcher", "poet"]).max_delegations(4))
        .store(MemoryStore::new())
        .define()?;

    println!("> A page on leeks, please.");
    let reply = editor.run_text("A page on leeks, please.").await?;

    let conversation = editor
        .latest_snapshot(reply.session_id())
        .await?
        .state
        .unwrap_or_default();
    for message in &conversation.messages {
        for part in message.content() {
            if let Some(request) = part.as_tool_request() {
                println!(
                    "[{}: {}]",
                    request.name,
                    request.input.clone().unwrap_or_default()["task"]
                );
            }
            if let Some(response) = part.as_tool_response() {
                println!(
                    "[{} answered {}]",
                    response.name,
                    response.output.clone().unwrap_or_default()["response"]
                );
            }
        }
    }
    println!("{}", reply.text());
    for artifact in conversation.artifacts.iter() {
        print!(
            "{}: {}",
            artifact.given_name().unwrap_or("something"),
            artifact.content_text()
        );
    }
    Ok(())
}
