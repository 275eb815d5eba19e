//! The types that an agent declares: its status, and the value that its function returns.

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentBuilder, AgentFinishReason, AgentInit, AgentSession, Custom, custom_agent, session_flow,
};
use everturn_ai::Message;
use everturn_core::{Reason, Registry, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Progress {
    percent: u8,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Bill {
    cents: u32,
}

fn waiter() -> AgentBuilder<Value, Custom<Value>, Progress, Bill> {
    custom_agent(&Registry::new(), "waiter", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.send_status(Progress { percent: 50 }).await?;
                turn.add_message(Message::model("Here is the bill."));
                turn.send_status(Progress { percent: 100 }).await?;
                Ok(AgentFinishReason::Stop)
            })
            .await?;
        Ok(session.result().with_output(Bill { cents: 1250 }))
    })
    .status::<Progress>()
}

#[tokio::test]
async fn a_chat_gives_the_status_and_the_output_in_their_types() {
    let agent: Agent<Value, Progress, Bill> = waiter().define().unwrap();
    let mut chat = agent.chat().open().await.unwrap();
    let mut turn = chat.send("The bill, please.").await.unwrap();
    let mut progress: Vec<Progress> = Vec::new();

    while let Some(chunk) = turn.next().await {
        progress.extend(chunk.unwrap().status().unwrap());
    }
    let bill: Option<Bill> = turn.output().await.unwrap().value().unwrap();

    assert_eq!(progress, [Progress { percent: 50 }, Progress { percent: 100 }]);
    assert_eq!(bill, Some(Bill { cents: 1250 }));
}

#[tokio::test]
async fn the_metadata_has_their_schemas() {
    let typed = waiter().define().unwrap().metadata();
    let untyped: Agent = session_flow(&Registry::new(), "plain", |session: AgentSession| async move {
        session.run(|_| async { Ok(()) }).await?;
        Ok(session.result())
    })
    .define()
    .unwrap();

    assert_eq!(
        typed.status_schema.unwrap()["properties"]["percent"]["type"],
        "integer"
    );
    assert_eq!(typed.output_schema.unwrap()["required"], json!(["cents"]));
    assert_eq!(untyped.metadata().status_schema, None);
    assert_eq!(untyped.metadata().output_schema, None);
}

#[tokio::test]
async fn the_output_is_a_field_of_the_wires_output() {
    let mut connection = waiter().define().unwrap().connect(AgentInit::default());
    connection.send("The bill, please.").await.unwrap();

    let output = serde_json::to_value(connection.output().await.unwrap()).unwrap();

    assert_eq!(output["output"], json!({"cents": 1250}));
    assert_eq!(output["message"]["content"][0]["text"], "Here is the bill.");
}

#[tokio::test]
async fn an_agent_that_returns_no_value_has_no_such_field() {
    let agent: Agent = custom_agent(&Registry::new(), "plain", |session: AgentSession| async move {
        session.run(|_| async { Ok(()) }).await?;
        Ok(session.result())
    })
    .define()
    .unwrap();

    let reply = agent.run_text("hello").await.unwrap();

    assert_eq!(reply.value().unwrap(), None);
    assert!(
        serde_json::to_value(reply.output())
            .unwrap()
            .get("output")
            .is_none()
    );
}

#[tokio::test]
async fn a_status_of_another_type_fails_where_it_is_sent() {
    let agent = custom_agent(&Registry::new(), "confused", |session: AgentSession| async move {
        session
            .run(|turn| async move { Ok(turn.send_status("half way").await?) })
            .await?;
        Ok(session.result())
    })
    .status::<Progress>()
    .define()
    .unwrap();

    let failed = agent.run_text("go").await.unwrap_err();

    assert_eq!(failed.status(), Status::InvalidArgument);
    assert!(failed.message().contains("status type"), "{failed}");
}

#[tokio::test]
async fn an_output_of_another_type_is_an_error_for_the_reader() {
    let registry = Registry::new();
    let agent = custom_agent(&registry, "other", |session: AgentSession| async move {
        session.run(|_| async { Ok(()) }).await?;
        Ok(session.result().with_output(json!("a lot")))
    });
    let reply = agent.define().unwrap().run_text("go").await.unwrap();

    let misread = everturn_agent::AgentReply::<Value, Bill>::from_output(reply.into_output()).unwrap();

    let error = misread.value().unwrap_err();
    assert!(error.is(Reason::INVALID_OUTPUT), "{error}");
}

#[tokio::test]
async fn a_background_run_keeps_its_output_for_those_who_wait() {
    let agent = waiter().store(MemoryStore::new()).define().unwrap();

    let task = agent
        .chat()
        .open()
        .await
        .unwrap()
        .detach("The bill, please.")
        .await
        .unwrap();
    let reply = task.wait().await.unwrap();

    assert_eq!(reply.value().unwrap(), Some(Bill { cents: 1250 }));
    assert_eq!(reply.text(), "Here is the bill.");
}

#[tokio::test]
async fn one_turn_is_streamed_in_one_call() {
    let agent = waiter().store(MemoryStore::new()).define().unwrap();

    let mut turn = agent.stream_text("The bill, please.").await.unwrap();
    let mut seen = Vec::new();
    while let Some(chunk) = turn.next().await {
        seen.extend(chunk.unwrap().status().unwrap());
    }
    let reply = turn.output().await.unwrap();
    let at_once = agent
        .stream(Message::user("Again."))
        .await
        .unwrap()
        .output()
        .await
        .unwrap();

    assert_eq!(seen.len(), 2);
    assert_eq!(reply.value().unwrap(), Some(Bill { cents: 1250 }));
    assert_ne!(
        at_once.session_id(),
        reply.session_id(),
        "each call begins a session"
    );
}

#[tokio::test]
async fn a_turn_that_fails_ends_its_stream_with_the_error() {
    let agent = crate::support::replying("failing").define().unwrap();

    let mut turn = agent.stream_text("boom").await.unwrap();
    let mut last = None;
    while let Some(chunk) = turn.next().await {
        last = Some(chunk);
    }

    assert_eq!(last.unwrap().unwrap_err().status(), Status::Unavailable);
    assert_eq!(turn.output().await.unwrap_err().status(), Status::Unavailable);
}

#[tokio::test]
async fn a_session_is_resumed_and_streamed_in_one_call() {
    let agent = crate::support::replying("resuming")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    agent.chat().resume("s").run("a").await.unwrap();

    let reply = agent
        .chat()
        .resume("s")
        .stream("b")
        .await
        .unwrap()
        .output()
        .await
        .unwrap();

    assert_eq!(reply.text(), "re: b");
    let latest = agent.latest_snapshot("s").await.unwrap();
    assert_eq!(latest.state.unwrap().messages.len(), 4);
}
