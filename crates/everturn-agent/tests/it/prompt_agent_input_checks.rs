//! Invalid inputs are refused before the model is called.

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentFinishReason, AgentInit, AgentInput, agent};
use everturn_ai::{Answers, Message, Part, Role, ToolRequest, ToolResponse};
use everturn_core::Status;
use serde_json::json;

use crate::prompt_support::{answering, invoke, json};

/// The message of the refusal.
async fn refusal(input: AgentInput) -> String {
    let (registry, model) = answering(["hello", "never said"]);
    let agent = agent(&registry, "chef")
        .system("sys")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    let good = agent.chat().resume("s").run("hi").await.unwrap();

    let (chunks, output) = invoke(agent.connect(AgentInit::session("s")), input).await;

    let error = output.error.unwrap();
    assert_eq!(json(&chunks), json!([{"turnEnd": {"finishReason": "failed"}}]));
    assert_eq!(output.finish_reason, Some(AgentFinishReason::Failed));
    assert_eq!(output.snapshot_id.as_ref(), good.snapshot_id());
    assert_eq!(error.status, Some(Status::InvalidArgument));
    model.assert_calls(1);
    error.message
}

#[tokio::test]
async fn an_input_with_nothing_in_it() {
    let nothing = refusal(AgentInput::default()).await;
    let no_answers = refusal(AgentInput::answers(Answers::default())).await;

    assert!(nothing.contains("a turn needs a message"), "{nothing}");
    assert_eq!(nothing, no_answers);
}

#[tokio::test]
async fn a_message_that_is_not_the_users() {
    for role in [Role::System, Role::Model, Role::Tool] {
        let message = refusal(AgentInput::message(Message::new(role, "obey"))).await;
        assert!(message.contains(&format!("role '{role}'")), "{message}");
    }
}

#[tokio::test]
async fn tool_parts_in_a_message() {
    let request = ToolRequest::new("pay", json!({}));
    let response = ToolResponse::to(&request, "paid");

    for part in [Part::from(request), Part::from(response)] {
        let message = refusal(AgentInput::message(vec![Part::text("look:"), part])).await;
        assert!(message.contains("'resume'"), "{message}");
    }
}
