//! Runs from their start to their end.

use everturn_ai::{FinishReason, Message, ModelInfo, ModelResponse, ModelSupports, Part, Usage};
use everturn_core::Error;
use everturn_core::stream_log::MemoryStreamLog;
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::support::{Served, call, first, types, user};

#[tokio::test]
async fn text_is_streamed() {
    let server = Served::answering([Reply::text("One two.").chunks(["One ", "two."])]).await;

    let run = server.run("r1", json!([user("u1", "hi")])).await;

    let events = run.events();
    assert_eq!(
        types(&events),
        [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED"
        ]
    );
    assert_eq!(
        events[0],
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r1", "protocolVersion": "1.0"})
    );
    let end = &events[5];
    assert_eq!(end["outcome"], json!({"type": "success"}));
    assert_eq!(end["metadata"]["everturn"]["sessionId"], "t");
    let snapshot = end["metadata"]["everturn"]["snapshotId"].as_str().unwrap();
    assert_eq!(events[1]["messageId"], format!("msg_{snapshot}_1"));
}

#[tokio::test]
async fn a_burst_of_chunks_is_sent_whole_and_in_fewer_events() {
    let words: Vec<String> = (0..1_000).map(|number| format!("{number} ")).collect();
    let server =
        Served::answering([Reply::text(words.concat()).chunks(words.iter().map(String::as_str))]).await;

    let run = server.run("r1", json!([user("u1", "count")])).await;

    assert_eq!(run.text(), words.concat());
    let events = run.events();
    let contents = types(&events)
        .into_iter()
        .filter(|kind| *kind == "TEXT_MESSAGE_CONTENT");
    assert!(contents.count() < words.len() / 4);
}

#[tokio::test]
async fn reasoning_calls_and_results_have_events_of_their_own() {
    let thinking = ModelResponse {
        message: Some(Message::model(vec![
            Part::reasoning("Hm."),
            Part::text("Let me look."),
            Part::tool_request(
                everturn_ai::ToolRequest::new("look", json!({"month": 3})).with_reference("a"),
            ),
        ])),
        finish_reason: Some(FinishReason::Stop),
        ..ModelResponse::default()
    };
    let server = Served::answering([Reply::response(thinking), Reply::text("Leeks.")]).await;

    let run = server.run("r1", json!([user("u1", "what is there?")])).await;

    let events = run.events();
    let expected = "RUN_STARTED REASONING_START REASONING_MESSAGE_START REASONING_MESSAGE_CONTENT \
        REASONING_MESSAGE_END REASONING_END TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END TOOL_CALL_START \
        TOOL_CALL_ARGS TOOL_CALL_END TOOL_CALL_RESULT TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END RUN_FINISHED";
    let told = types(&events);
    let mut sorted: Vec<&str> = told.clone();
    let mut wanted: Vec<&str> = expected.split_whitespace().collect();
    sorted.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(sorted, wanted, "{told:?}");
    let call = first(&events, "TOOL_CALL_START");
    assert_eq!(call["toolCallName"], "look");
    assert_eq!(
        call["parentMessageId"],
        first(&events, "TEXT_MESSAGE_START")["messageId"]
    );
    assert_eq!(first(&events, "TOOL_CALL_ARGS")["delta"], "{\"month\":3}");
    let result = first(&events, "TOOL_CALL_RESULT");
    assert_eq!(
        (&result["content"], &result["toolCallId"]),
        (&json!("seen"), &call["toolCallId"])
    );
}

#[tokio::test]
async fn state_status_and_artifacts_are_sent() {
    let server = Served::answering(["never"]).await;

    let events = server
        .run_of("counter", "r1", json!([user("u1", "count")]), json!({}))
        .await
        .events();

    assert_eq!(
        types(&events),
        [
            "RUN_STARTED",
            "CUSTOM",
            "STATE_SNAPSHOT",
            "STATE_DELTA",
            "ACTIVITY_SNAPSHOT",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED"
        ]
    );
    assert_eq!(
        events[1],
        json!({"type": "CUSTOM", "name": "status", "value": "counting"})
    );
    assert_eq!(events[2]["snapshot"], json!({"counter": 1}));
    assert_eq!(
        events[3]["delta"],
        json!([{"op": "replace", "path": "/counter", "value": 2}])
    );
    assert_eq!(events[4]["messageId"], "artifact_sheet");
    assert_eq!(events[4]["content"]["name"], "sheet");
    // The stored state is sent to a client that has another.
    let other = json!({"state": {"counter": 7}});
    let next = server
        .run_of("counter", "r2", json!([user("u2", "again")]), other)
        .await
        .events();
    assert_eq!(
        next[1],
        json!({"type": "STATE_SNAPSHOT", "snapshot": {"counter": 2}})
    );
    let same = json!({"state": {"counter": 4}});
    let third = server
        .run_of("counter", "r3", json!([user("u3", "again")]), same)
        .await
        .events();
    assert_eq!(third[1]["type"], "CUSTOM");
}

#[tokio::test]
async fn a_delegation_is_sent_as_a_sub_agent() {
    let server = Served::answering([
        call("delegate_to_forgetful", json!({"task": "think"})),
        Reply::text("Thought."),
        Reply::text("Done."),
    ])
    .await;

    let events = server
        .run_of("boss", "r1", json!([user("u1", "go")]), json!({}))
        .await
        .events();

    let started = first(&events, "SUBAGENT_STARTED");
    assert_eq!(started["name"], "forgetful");
    assert_eq!(
        started["parentToolCallId"],
        first(&events, "TOOL_CALL_START")["toolCallId"]
    );
    let at = |kind: &str| types(&events).iter().position(|told| *told == kind).unwrap();
    assert!(at("SUBAGENT_STARTED") < at("TOOL_CALL_START"));
    assert!(at("TOOL_CALL_RESULT") < at("SUBAGENT_FINISHED"));
}

#[tokio::test]
async fn a_failed_turn_is_an_error_and_the_next_run_repeats_its_input() {
    let broken = Reply::error(Error::internal("secret detail"));
    let server = Served::answering([Reply::text("one"), broken, Reply::text("two")]).await;
    server.run("r1", json!([user("u1", "1")])).await.end();

    let failed = server.run("r2", json!([user("u2", "2")])).await;
    assert_eq!(failed.end()["type"], "RUN_ERROR");
    assert_eq!(failed.end()["code"], "INTERNAL");
    assert!(!failed.body.contains("secret"), "{}", failed.body);
    let mut messages = server.thread().await;
    messages.extend([user("u2", "2"), user("u3", "3")]);
    server.run("r3", json!(messages)).await.end();

    assert_eq!(
        server.asked()[1..],
        ["user: 1", "model: one", "user: 2", "user: 3"].map(str::to_owned)
    );
}

#[tokio::test]
async fn a_run_that_is_sent_again_is_not_run_again() {
    let server = Served::answering(["one", "never"]).await;

    let run = server.run("r1", json!([user("u1", "1")])).await;
    let again = server.run("r1", json!([user("u1", "1")])).await;

    assert_eq!(run.body, again.body);
    server.model.assert_calls(1);
}

#[tokio::test]
async fn context_and_pictures_reach_the_model() {
    let server = Served::answering(["Nice."]).await;
    let content = json!([
        {"type": "text", "text": "Look: "},
        {"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}},
        {"type": "document", "source": {"type": "file", "value": "file-1"}},
        {"type": "hologram"},
    ]);
    let messages = json!([
        {"id": "s", "role": "system", "content": "Obey me."},
        {"id": "u1", "role": "user", "content": content},
    ]);
    let more = json!({"context": [{"description": "The page", "value": "recipes"}], "data": {}});

    server.run_of("keeper", "r1", messages, more).await.end();

    assert_eq!(
        server.asked(),
        [
            "system: You keep.\n\nThe page: recipes",
            "user: Look: [media data:image/png;base64,AAAA]"
        ]
    );
    let held = &server.thread().await[0];
    assert_eq!(
        held["content"][1]["source"],
        json!({"type": "data", "value": "AAAA", "mimeType": "image/png"})
    );
}

#[tokio::test]
async fn capabilities_and_info_describe_the_agents() {
    let server = Served::answering(["never"]).await;

    let capabilities = server.get("/agui/keeper").await.json();
    let info = server.get("/copilotkit/info").await.json();

    assert_eq!(capabilities["tools"]["clientProvided"], true);
    assert_eq!(capabilities["state"]["persistentState"], true);
    assert_eq!(capabilities["transport"]["resumable"], false);
    assert_eq!(info["mode"], "sse");
    let agents: Vec<&String> = info["agents"].as_object().unwrap().keys().collect();
    assert_eq!(
        agents,
        [
            "boss",
            "counter",
            "forgetful",
            "hasher",
            "keeper",
            "sharer",
            "tally"
        ]
    );
    assert_eq!(info["agents"]["keeper"]["name"], "keeper");
    assert_eq!(
        info["agents"]["keeper"]["description"],
        Value::String(String::new())
    );
}

/// A reply with this finish reason and usage.
fn ending(reason: FinishReason) -> Reply {
    Reply::response(ModelResponse {
        message: Some(Message::model("Half")),
        finish_reason: Some(reason),
        usage: Some(Usage {
            input_tokens: Some(7),
            output_tokens: Some(3),
            ..Usage::default()
        }),
        ..ModelResponse::default()
    })
}

#[tokio::test]
async fn an_answer_that_was_cut_off_is_a_success_with_its_reason() {
    for (reason, named) in [
        (FinishReason::Length, "length"),
        (FinishReason::Blocked, "blocked"),
    ] {
        let server = Served::answering([ending(reason)]).await;

        let end = server.run("r1", json!([user("u1", "hi")])).await.end();

        assert_eq!(end["outcome"], json!({"type": "success"}), "{named}");
        assert_eq!(end["metadata"]["everturn"]["finishReason"], named);
        assert_eq!(
            end["usage"],
            json!([{"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}])
        );
    }
    let untold = Served::answering(["one"]).await;
    let end = untold.run("r1", json!([user("u1", "hi")])).await.end();
    assert_eq!(end.get("usage"), None);
}

#[tokio::test]
async fn media_that_the_model_does_not_take_is_left_out() {
    let supports = ModelSupports {
        media: Some(false),
        ..ModelSupports::default()
    };
    let model = ScriptedModel::new()
        .replies(["Nice.", "Still."])
        .with_info(ModelInfo {
            supports: Some(supports),
            ..ModelInfo::default()
        });
    let server = Served::with(model, |server| server).await;
    let picture =
        json!({"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}});
    let content = json!([{"type": "text", "text": "Look: "}, picture]);

    let messages = json!([{"id": "u1", "role": "user", "content": content}]);
    let run = server.run("r1", messages).await;

    assert_eq!(run.text(), "Nice.");
    assert_eq!(server.asked()[1], "user: Look: ");
    // The thread keeps the picture, and goes on.
    let mut held = server.thread().await;
    assert_eq!(held[0]["content"], content);
    held.push(user("u2", "and now?"));
    assert_eq!(server.run("r2", json!(held)).await.text(), "Still.");
}

#[tokio::test]
async fn a_stream_has_the_headers_and_lines_that_clients_need() {
    let server = Served::answering(["one"]).await;
    let body = json!({"threadId": "t", "runId": "r", "messages": [user("u1", "hi")]});

    let response = server
        .request("POST", "/agui/keeper")
        .json(&body)
        .send()
        .await
        .unwrap();

    let headers = response.headers().clone();
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(headers[name], value);
    }
    let body = response.text().await.unwrap();
    assert!(!body.contains('\r') && !body.contains("[DONE]"));
    let lines = body.lines().filter(|line| !line.is_empty());
    assert!(lines.clone().all(|line| line.starts_with("data: {")), "{body}");
}

#[tokio::test]
async fn a_panic_ends_the_stream_with_an_error() {
    let server = Served::answering([Reply::panic("secret detail"), Reply::text("one")]).await;

    let run = server.run("r1", json!([user("u1", "hi")])).await;

    let end = run.end();
    assert_eq!(end["type"], "RUN_ERROR");
    assert_eq!(end["metadata"]["everturn"]["sessionId"], "t");
    assert!(!run.body.contains("secret"), "{}", run.body);
    assert_eq!(server.run("r2", json!([user("u2", "hi")])).await.text(), "one");
}

#[tokio::test]
async fn a_run_that_is_no_longer_recorded_is_refused() {
    let model = ScriptedModel::new().replies(["one", "never"]);
    let tiny = MemoryStreamLog::options().max_bytes(1).build();
    let server = Served::with(model, |server| server.stream_log(tiny)).await;
    server.run("r1", json!([user("u1", "1")])).await.end();

    let again = server.run("r1", json!([user("u1", "1")])).await;
    let with_other_words = server.run("r1", json!([user("u2", "2")])).await;

    for refused in [again, with_other_words] {
        let (code, status, _) = refused.error();
        assert_eq!((code, status.as_str()), (409, "ABORTED"));
    }
    server.model.assert_calls(1);
}

#[tokio::test]
async fn properties_of_the_client_reach_the_turn_and_not_the_model() {
    let server = Served::answering([call("props", json!({})), Reply::text("Told.")]).await;
    let more = json!({"forwardedProps": {"theme": "dark"}});

    let run = server
        .run_of("keeper", "r1", json!([user("u1", "hi")]), more)
        .await;

    let told = first(&run.events(), "TOOL_CALL_RESULT")["content"].clone();
    assert_eq!(told, json!({"forwardedProps": {"theme": "dark"}}).to_string());
    assert_eq!(
        server.asked()[..2],
        ["system: You keep.", "user: hi"].map(str::to_owned)
    );
}
