//! The details of a turn in the streams of callers that request them.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    AgentInit, AgentInput, AgentSession, AgentStreamChunk, ClientTool, TurnDetails, agent, custom_agent,
};
use everturn_ai::{Message, Part, Tool, ToolContext};
use everturn_core::{Context, Registry, Status};
use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::prompt_support::{answering, call, invoke, json};

fn details() -> Context {
    Context::new().with_extension(Arc::new(TurnDetails))
}

fn positions(chunks: &[AgentStreamChunk]) -> Vec<(String, Option<usize>)> {
    let model = chunks
        .iter()
        .filter_map(|chunk| Some((chunk.model_chunk.as_ref()?, chunk.position)));
    model
        .map(|(model, position)| (json!(model.role).as_str().unwrap_or("none").to_owned(), position))
        .collect()
}

#[tokio::test]
async fn each_message_is_placed_before_it_is_there() {
    let (registry, _) = answering([
        Reply::from("Hello.").chunks(["Hel", "lo."]),
        Reply::from(call("look", "1", json!(null))),
        Reply::from("Seen.").chunks(["Seen", "."]),
    ]);
    let look = Tool::new("look", "Looks.", |_: Value, _: ToolContext| async { Ok("it") });
    let looker = agent(&registry, "looker")
        .tool(look)
        .store(MemoryStore::new())
        .define()
        .unwrap();
    looker.chat().resume("s").run("hi").await.unwrap();

    let connection = looker.connect_in(AgentInit::session("s"), &details());
    let (chunks, output) = invoke(connection, "look").await;

    let start = chunks[0].turn_start.as_ref().unwrap();
    assert_eq!(start.position, 2);
    assert_eq!(start.snapshot_id, output.snapshot_id);
    assert_eq!(start.session_id.as_str(), "s");
    assert!(
        positions(&chunks)
            .iter()
            .any(|(role, place)| role == "tool" && *place == Some(4))
    );
    assert!(
        positions(&chunks)
            .iter()
            .all(|(role, place)| role != "model" || *place == Some(5))
    );
    let end = chunks.last().unwrap().turn_end.as_ref().unwrap();
    let added = end.added.as_ref().unwrap();
    assert_eq!(added.position, 2);
    let texts: Vec<_> = added
        .messages
        .iter()
        .map(|message| message.text().into_owned())
        .collect();
    assert_eq!(texts, ["look", "", "", "Seen."]);
}

#[tokio::test]
async fn an_accepted_input_is_reported_before_the_model_answers_and_a_refused_one_is_not() {
    let (registry, _) = answering(["Hello."]);
    let look = Tool::new("look", "Looks.", |_: Value, _: ToolContext| async { Ok("it") });
    let looker = agent(&registry, "looker").tool(look).define().unwrap();
    let start = |input: AgentInput| invoke(looker.connect_in(AgentInit::default(), &details()), input);

    let (accepted, _) = start(AgentInput::from("hi")).await;
    let (refused, output) = start(AgentInput {
        tools: vec![ClientTool::new("look")],
        ..AgentInput::from("hi")
    })
    .await;

    assert_eq!(accepted[1], AgentStreamChunk::default());
    assert!(accepted[2].model_chunk.is_some() || accepted[2].turn_end.is_some());
    assert_eq!(output.error.unwrap().status, Some(Status::InvalidArgument));
    assert!(
        refused.iter().all(|chunk| *chunk != AgentStreamChunk::default()),
        "{refused:?}"
    );
}

#[tokio::test]
async fn nobody_else_is_reported() {
    let (registry, _) = answering(["Hello."]);
    let plain = agent(&registry, "plain")
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let (chunks, _) = invoke(plain.connect(AgentInit::default()), AgentInput::from("hi")).await;

    let told = json(&chunks).to_string();
    assert!(
        !told.contains("position") && !told.contains("turnStart") && !told.contains("added"),
        "{told}"
    );
}

#[tokio::test]
async fn chunks_that_an_agent_sends_itself_have_the_place_of_its_next_message() {
    let registry = Registry::new();
    let own = custom_agent(&registry, "own", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.send_chunk("So ").await?;
                turn.send_chunk(Part::text("it is.")).await?;
                turn.add_message(Message::model("So it is."));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .define()
    .unwrap();

    let (chunks, _) = invoke(own.connect_in(AgentInit::default(), &details()), "well?").await;

    let places: Vec<_> = positions(&chunks).into_iter().map(|(_, place)| place).collect();
    assert_eq!(places, [Some(1), Some(1)]);
}
