//! Tools of the application.

use everturn_testkit::Reply;
use serde_json::json;

use crate::support::{Served, call, first, paint, types, user};

#[tokio::test]
async fn a_call_of_the_applications_tool_is_answered_in_the_next_run() {
    let server = Served::answering([call("paint", json!({"color": "red"})), Reply::text("Painted.")]).await;
    let more = json!({"tools": [paint()]});

    let run = server
        .run_of("keeper", "r1", json!([user("u1", "paint")]), more.clone())
        .await;
    let id = first(&run.events(), "TOOL_CALL_START")["toolCallId"].clone();
    assert_eq!(
        run.end()["outcome"],
        json!({"type": "success", "pendingToolCallIds": [id]})
    );
    assert!(!types(&run.events()).contains(&"TOOL_CALL_RESULT"));
    let mut held = server.thread().await;
    held.push(json!({"id": "tool-1", "role": "tool", "toolCallId": id, "content": "done"}));
    let next = server.run_of("keeper", "r2", json!(held), more).await;

    assert_eq!(next.text(), "Painted.");
    // The client shows the result that it sent.
    assert!(!types(&next.events()).contains(&"TOOL_CALL_RESULT"));
    assert!(
        !types(&next.events()).contains(&"MESSAGES_SNAPSHOT"),
        "{}",
        next.body
    );
    assert_eq!(
        server.asked()[2..],
        ["model: [call paint]", "tool: [result \"done\"]"].map(str::to_owned)
    );
}

#[tokio::test]
async fn a_message_in_place_of_the_result_closes_the_call() {
    let replies = [
        call("paint", json!({"color": "red"})),
        Reply::text("As you like."),
        Reply::text("Bye."),
    ];
    let server = Served::answering(replies).await;
    let more = json!({"tools": [paint()]});
    let run = server
        .run_of("keeper", "r1", json!([user("u1", "paint")]), more.clone())
        .await;
    let id = first(&run.events(), "TOOL_CALL_START")["toolCallId"].clone();

    let mut held = server.thread().await;
    held.push(user("u2", "never mind"));
    let next = server.run_of("keeper", "r2", json!(held), more.clone()).await;

    assert_eq!(next.text(), "As you like.");
    let result = first(&next.events(), "TOOL_CALL_RESULT").clone();
    assert_eq!(result["toolCallId"], id);
    assert_eq!(result["content"], "not answered: the conversation went on");
    let asked = [
        "model: [call paint]",
        "tool: [result \"not answered: the conversation went on\"]",
        "user: never mind",
    ];
    assert_eq!(server.asked()[2..], asked.map(str::to_owned));
    let mut held = server.thread().await;
    held.push(user("u3", "bye"));
    assert_eq!(
        server.run_of("keeper", "r3", json!(held), more).await.text(),
        "Bye."
    );
}

#[tokio::test]
async fn clients_before_1_0_receive_no_unsupported_events() {
    let server = Served::answering([call("paint", json!({}))]).await;
    let body = json!({"threadId": "t", "runId": "r", "messages": [user("u1", "paint")], "tools": [paint()]});

    let run = server.post("/agui/keeper", &body).await;

    assert_eq!(run.end()["outcome"], json!({"type": "success"}));
}

#[tokio::test]
async fn a_tool_may_not_be_called_like_one_of_the_agent() {
    let server = Served::answering(["never"]).await;
    let mut tool = paint();
    tool["name"] = json!("look");

    let run = server
        .run_of(
            "keeper",
            "r1",
            json!([user("u1", "hi")]),
            json!({"tools": [tool]}),
        )
        .await;

    assert_eq!(run.error().1, "INVALID_ARGUMENT");
    server.model.assert_calls(0);
}

#[tokio::test]
async fn agents_without_a_prompt_ignore_the_applications_tools() {
    let server = Served::answering(["never"]).await;

    let run = server
        .run_of(
            "counter",
            "r1",
            json!([user("u1", "hi")]),
            json!({"tools": [paint()]}),
        )
        .await;

    assert_eq!(run.text(), "Counted.");
    assert_eq!(
        server.get("/agui/counter").await.json()["tools"]["clientProvided"],
        false
    );
}

#[tokio::test]
async fn a_newer_minor_version_is_served_like_1_0() {
    let server = Served::answering([call("paint", json!({}))]).await;
    let more = json!({"tools": [paint()], "protocolVersion": "1.7"});

    let run = server
        .run_of("keeper", "r1", json!([user("u1", "paint")]), more)
        .await;

    assert_eq!(run.events()[0]["protocolVersion"], "1.0");
    assert!(run.end()["outcome"]["pendingToolCallIds"].is_array());
}

#[tokio::test]
async fn a_result_is_known_however_its_json_is_written() {
    let server = Served::answering([call("paint", json!({})), "Painted.".into(), "Bye.".into()]).await;
    let more = json!({"tools": [paint()]});
    let run = server
        .run_of("keeper", "r1", json!([user("u1", "paint")]), more.clone())
        .await;
    let id = first(&run.events(), "TOOL_CALL_START")["toolCallId"].clone();
    let mut held = server.thread().await;
    held.push(json!({"id": "x", "role": "tool", "toolCallId": id, "content": "{ \"done\" : true }"}));

    let painted = server.run_of("keeper", "r2", json!(held), more.clone()).await;
    let said = first(&painted.events(), "TEXT_MESSAGE_START")["messageId"].clone();
    held.extend([
        json!({"id": said, "role": "assistant", "content": "Painted."}),
        user("u2", "bye"),
    ]);
    let bye = server.run_of("keeper", "r3", json!(held), more).await;

    assert!(!types(&painted.events()).contains(&"TOOL_CALL_RESULT"));
    assert_eq!(bye.text(), "Bye.");
    assert!(
        !types(&bye.events()).contains(&"MESSAGES_SNAPSHOT"),
        "{}",
        bye.body
    );
}

#[tokio::test]
async fn the_number_and_size_of_tools_are_limited() {
    let server = Served::answering(["never"]).await;
    let many: Vec<_> = (0..65)
        .map(|number| json!({"name": format!("tool{number}"), "description": ""}))
        .collect();
    let large = json!([{"name": "large", "description": "x".repeat(20_000)}]);

    for (run, tools) in [("r1", json!(many)), ("r2", large)] {
        let more = json!({ "tools": tools });
        let refused = server
            .run_of("keeper", run, json!([user("u1", "hi")]), more)
            .await;
        assert_eq!(refused.error().1, "INVALID_ARGUMENT");
    }
    server.model.assert_calls(0);
}
