//! The messages that are kept after the model has answered.

use everturn_agent::{AgentFinishReason, AgentInit, AgentReply, agent};
use everturn_ai::prompt::MessagesSlot;
use everturn_ai::{FinishReason, Message, ModelResponse, Tool, ToolContext};
use everturn_core::{Error, Status};
use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::prompt_support::{answering, asked, call, fresh, invoke, said};

fn double() -> Tool {
    Tool::new(
        "double",
        "Doubles a number.",
        |n: i64, _: ToolContext| async move { Ok(n * 2) },
    )
}

#[tokio::test]
async fn tool_calls_and_their_answers_are_part_of_the_conversation() {
    let (registry, _model) = answering([
        Reply::tools([call("double", "a", json!(1)), call("double", "b", json!(2))]),
        Reply::tool("double", 4),
        "eight".into(),
    ]);
    let agent = agent(&registry, "clerk")
        .system("sys")
        .tool(double())
        .define()
        .unwrap();

    let reply = agent.run_text("count").await.unwrap();

    assert_eq!(
        said(&reply.state().unwrap().messages),
        [
            "user: count",
            "model: ask(double) ask(double)",
            "tool: answer(2) answer(4)",
            "model: ask(double)",
            "tool: answer(8)",
            "model: eight",
        ]
    );
}

#[tokio::test]
async fn each_turn_of_a_connection_continues_from_the_one_before() {
    let (registry, model) = answering(["one!", "two!", "three!"]);
    let agent = agent(&registry, "chef").system("sys").define().unwrap();

    let mut connection = agent.connect(AgentInit::default());
    for text in ["one", "two", "three"] {
        connection.send(text).await.unwrap();
        while connection
            .receive()
            .next()
            .await
            .is_some_and(|chunk| chunk.turn_end.is_none())
        {}
    }
    let output = connection.output().await.unwrap();

    assert_eq!(
        asked(&model.requests()[2])[1..],
        [
            "user: one",
            "model: one!",
            "user: two",
            "model: two!",
            "user: three"
        ]
    );
    assert_eq!(output.state.unwrap().messages.len(), 6);
}

#[tokio::test]
async fn a_tool_loop_around_a_trimmed_conversation_keeps_both() {
    let (registry, _model) = answering(["one!".into(), Reply::tool("double", 2), Reply::text("four")]);
    let latest = MessagesSlot::computed(|scope| async move {
        let length = scope.conversation.len();
        Ok(scope.conversation.slice(length - 1..length))
    });
    let agent = agent(&registry, "clerk")
        .messages(latest)
        .tool(double())
        .define()
        .unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    chat.run("one").await.unwrap();
    let reply = chat.run("two").await.unwrap();

    let kept = said(&reply.state().unwrap().messages);
    assert_eq!(
        kept,
        [
            "user: two",
            "model: ask(double)",
            "tool: answer(4)",
            "model: four"
        ]
    );
}

#[tokio::test]
async fn a_model_that_fails_leaves_the_message_that_it_did_not_answer() {
    let (registry, _model) = answering([
        Reply::text("one!"),
        Error::resource_exhausted("no more today").into(),
        "three!".into(),
    ]);
    let agent = agent(&registry, "chef").define().unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    chat.run("one").await.unwrap();
    let failed = chat.run("two").await.unwrap_err();
    let after = chat.run("three").await.unwrap();

    let last_good = AgentReply::<Value>::of(&failed).unwrap();
    assert_eq!(
        (failed.status(), failed.message()),
        (Status::ResourceExhausted, "generate: no more today")
    );
    assert_eq!(
        said(&last_good.state().unwrap().messages),
        ["user: one", "model: one!", "user: two"]
    );
    assert_eq!(
        said(&after.state().unwrap().messages),
        [
            "user: one",
            "model: one!",
            "user: two",
            "user: three",
            "model: three!"
        ]
    );
}

#[tokio::test]
async fn the_models_reason_is_the_turns_and_the_invocations() {
    let cut = ModelResponse::new(Message::model("and so on")).with_finish_reason(FinishReason::Length);
    let (registry, _model) = answering([cut]);
    let agent = agent(&registry, "chef").define().unwrap();

    let (chunks, output) = invoke(agent.connect(fresh()), "tell").await;

    let [chunk] = chunks.as_slice() else {
        panic!("{chunks:?}");
    };
    let end = chunk.turn_end.as_ref().unwrap();
    assert_eq!(end.finish_reason, Some(AgentFinishReason::Length));
    assert_eq!(end.usage.unwrap().model_calls, 1);
    assert_eq!(output.finish_reason, Some(AgentFinishReason::Length));
}
