//! One turn at `/responses`, and going on from it.

use everturn_ai::{FinishReason, Message, ModelResponse, Part, ToolRequest, Usage};
use everturn_core::Error;
use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::support::{Served, answer, names, paint};

fn call(name: &str) -> Reply {
    Reply::tools([ToolRequest::new(name, json!({"x": 1})).with_reference("ref-1")])
}

#[tokio::test]
async fn a_turn_is_answered_with_the_whole_object_which_can_be_read_again() {
    let server = Served::answering(["Leeks."]).await;

    let response = server
        .respond(
            json!({"input": "What is in season?", "instructions": "Be brief.", "metadata": {"who": "ann"}}),
        )
        .await
        .json();

    assert_eq!(response["object"], "response");
    assert_eq!(response["status"], "completed");
    assert_eq!(response["store"], true);
    assert_eq!(response["metadata"], json!({"who": "ann"}));
    assert_eq!(response["output"][0]["content"][0]["text"], "Leeks.");
    assert_eq!(
        server.asked(),
        ["system: You keep.\n\nBe brief.", "user: What is in season?"]
    );
    let id = response["id"].as_str().unwrap();
    let again = server.get(&format!("/responses/{id}")).await.json();
    for field in [
        "id",
        "status",
        "output",
        "metadata",
        "conversation",
        "model",
        "usage",
    ] {
        assert_eq!(again[field], response[field], "{field}");
    }
    let inputs = server.get(&format!("/responses/{id}/input_items")).await.json();
    assert_eq!(inputs["data"][0]["content"][0]["text"], "What is in season?");
    assert_eq!(inputs["has_more"], false);
}

#[tokio::test]
async fn a_stream_contains_every_item_in_order() {
    let server =
        Served::answering([
            Reply::content(vec![Part::reasoning("hm"), Part::text("I look.")]).chunks([
                Part::reasoning("hm"),
                Part::text("I "),
                Part::text("look."),
            ]),
        ])
        .await;

    let events = server
        .respond(json!({"input": "hi", "stream": true}))
        .await
        .events();

    assert_eq!(
        names(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let numbers: Vec<u64> = events
        .iter()
        .map(|event| event["sequence_number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..16).collect::<Vec<_>>());
    let last = &events[15]["response"];
    assert_eq!(last["output"][1]["content"][0]["text"], "I look.");
    // The ids of the stream are those of the stored response.
    let id = last["id"].as_str().unwrap();
    let stored = server.get(&format!("/responses/{id}")).await.json();
    assert_eq!(stored["output"], last["output"]);
}

#[tokio::test]
async fn going_on_from_an_older_response_branches() {
    let server = Served::answering(["one", "two", "other two"]).await;
    let first = server.respond(json!({"input": "1"})).await.json();
    let second = server
        .respond(json!({"input": "2", "previous_response_id": first["id"]}))
        .await
        .json();

    let branch = server
        .respond(json!({"input": "2b", "previous_response_id": first["id"]}))
        .await
        .json();

    assert_eq!(
        server.asked()[1..],
        ["user: 1", "model: one", "user: 2b"].map(str::to_owned)
    );
    assert_eq!(branch["previous_response_id"], first["id"]);
    assert_ne!(branch["id"], second["id"]);
}

#[tokio::test]
async fn a_conversation_is_a_session() {
    let server = Served::answering(["one", "two"]).await;

    server
        .respond(json!({"input": "1", "conversation": "c1"}))
        .await
        .json();
    let second = server
        .respond(json!({"input": "2", "conversation": {"id": "c1"}}))
        .await
        .json();

    assert_eq!(second["conversation"]["id"], "c1");
    assert_eq!(server.asked().len(), 4);
    let found = server.get("/conversations/c1").await.json();
    assert_eq!(found["object"], "conversation");
    let gone = answer(server.request("DELETE", "/conversations/c1")).await.json();
    assert_eq!(gone["deleted"], true);
    assert_eq!(server.get("/conversations/c1").await.error().0, 404);
}

#[tokio::test]
async fn a_function_of_the_caller_is_answered_by_the_caller() {
    let server = Served::answering([call("paint"), Reply::text("Painted.")]).await;

    let asking = server
        .respond(json!({"input": "paint", "tools": [paint()]}))
        .await
        .json();
    let item = &asking["output"][0];
    assert_eq!(item["type"], "function_call");
    assert_eq!(item["arguments"], "{\"x\":1}");
    let answered = server
        .respond(json!({
            "previous_response_id": asking["id"],
            "input": [{"type": "function_call_output", "call_id": item["call_id"], "output": "{\"done\": true}"}],
        }))
        .await
        .json();

    assert_eq!(answered["output"][0]["content"][0]["text"], "Painted.");
    assert_eq!(server.asked()[3], "tool: [result {\"done\":true}]");
}

#[tokio::test]
async fn a_tool_that_asks_before_it_acts_is_an_approval() {
    for (approve, told) in [
        (true, "tool: [result \"paid\"]"),
        (false, "tool: [result {\"denied\":true,\"reason\":\"no\"}]"),
    ] {
        let server = Served::answering([call("pay"), Reply::text("Well.")]).await;
        let asking = server.respond(json!({"input": "pay"})).await.json();
        let item = &asking["output"][0];
        assert_eq!(item["type"], "mcp_approval_request");

        let answered = server
            .respond(json!({
                "previous_response_id": asking["id"],
                "input": [{
                    "type": "mcp_approval_response",
                    "approval_request_id": item["id"],
                    "approve": approve,
                    "reason": "no",
                }],
            }))
            .await
            .json();

        assert_eq!(server.asked()[3], told);
        let kinds: Vec<&Value> = answered["output"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| &item["type"])
            .collect();
        if approve {
            assert_eq!(kinds, ["mcp_call", "message"]);
        } else {
            assert_eq!(kinds, ["message"]);
        }
    }
}

#[tokio::test]
async fn a_tool_of_the_agent_is_shown_as_done() {
    let server = Served::answering([call("look"), Reply::text("Found.")]).await;

    let events = server
        .respond(json!({"input": "look", "stream": true}))
        .await
        .events();

    let names = names(&events);
    assert!(names.contains(&"response.mcp_call.completed"), "{names:?}");
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"][0]["type"], "mcp_call");
    assert_eq!(last["output"][0]["output"], "seen");
    assert_eq!(last["output"][1]["content"][0]["text"], "Found.");
}

#[tokio::test]
async fn nothing_is_stored_if_the_caller_requests_it() {
    let server = Served::answering(["one"]).await;

    let response = server
        .respond(json!({"input": "hi", "store": false}))
        .await
        .json();

    assert_eq!(response["store"], false);
    assert_eq!(response["conversation"], Value::Null);
    let id = response["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/responses/{id}")).await.error().0, 404);
}

#[tokio::test]
async fn a_failed_turn_is_a_failed_response_and_not_an_http_error() {
    let broken = || Reply::error(everturn_core::Error::internal("the oven is broken"));
    let server = Served::answering([broken(), broken()]).await;

    let response = server.respond(json!({"input": "hi"})).await.json();
    let events = server
        .respond(json!({"input": "hi", "stream": true}))
        .await
        .events();

    assert_eq!(response["status"], "failed");
    assert_eq!(response["error"]["code"], "invalid_turn");
    assert_eq!(names(&events).last(), Some(&"response.failed"));
}

#[tokio::test]
async fn a_deleted_response_is_missing_and_its_children_stay() {
    let server = Served::answering(["one", "two", "three"]).await;
    let first = server.respond(json!({"input": "1"})).await.json();
    let second = server
        .respond(json!({"input": "2", "previous_response_id": first["id"]}))
        .await
        .json();
    let path = format!("/responses/{}", first["id"].as_str().unwrap());

    let gone = answer(server.request("DELETE", &path)).await.json();

    assert_eq!(
        gone,
        json!({"id": first["id"], "object": "response", "deleted": true})
    );
    assert_eq!(server.get(&path).await.error().0, 404);
    server
        .respond(json!({"input": "3", "previous_response_id": second["id"]}))
        .await
        .json();
    assert_eq!(server.asked().len(), 6);
}

#[tokio::test]
async fn answers_are_inputs_under_the_ids_of_their_calls() {
    let server = Served::answering([
        call("ask"),
        call("pay"),
        Reply::text("Paid."),
        Reply::text("Bye."),
    ])
    .await;
    let asking = server
        .respond(json!({"input": "ask", "conversation": "c"}))
        .await
        .json();
    let call_id = &asking["output"][0]["call_id"];
    let output = json!([{"type": "function_call_output", "call_id": call_id, "output": "because"}]);
    let paying = server
        .respond(json!({"input": output, "conversation": "c", "metadata": {"step": "2"}}))
        .await
        .json();
    let request_id = &paying["output"][0]["id"];
    let approval =
        json!([{"type": "mcp_approval_response", "approval_request_id": request_id, "approve": true}]);
    let paid = server
        .respond(json!({"input": approval, "conversation": "c"}))
        .await
        .json();

    let first_input = async |response: &Value| {
        let id = response["id"].as_str().unwrap();
        let list = server.get(&format!("/responses/{id}/input_items")).await.json();
        list["data"][0].clone()
    };
    let answered = first_input(&paying).await;
    assert_eq!(
        (&answered["type"], &answered["call_id"]),
        (&json!("function_call_output"), call_id)
    );
    let approved = first_input(&paid).await;
    assert_eq!(approved["type"], "mcp_approval_response");
    assert_eq!(
        (&approved["approve"], &approved["approval_request_id"]),
        (&json!(true), request_id)
    );
    let again = server
        .get(&format!("/responses/{}", paying["id"].as_str().unwrap()))
        .await
        .json();
    assert_eq!(again["metadata"], json!({"step": "2"}));

    let items = server.get("/conversations/c/items?order=asc").await.json();
    let kinds: Vec<&str> = items["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "message",
            "function_call",
            "function_call_output",
            "mcp_approval_request",
            "mcp_approval_response",
            "mcp_call",
            "message"
        ]
    );
    assert_eq!(items["data"][1]["id"], asking["output"][0]["id"]);
    let newest = server.get("/conversations/c/items?limit=1").await.json();
    assert_eq!(newest["data"][0], items["data"][6]);
    assert_eq!(newest["has_more"], true);
}

#[tokio::test]
async fn a_truncated_answer_is_incomplete_and_has_its_usage() {
    for (reason, named) in [
        (FinishReason::Length, "max_output_tokens"),
        (FinishReason::Blocked, "content_filter"),
    ] {
        let ending = || {
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
        };
        let server = Served::answering([ending(), ending()]).await;

        let response = server.respond(json!({"input": "hi"})).await.json();
        let events = server
            .respond(json!({"input": "hi", "stream": true}))
            .await
            .events();

        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"], json!({ "reason": named }));
        assert_eq!(
            response["usage"],
            json!({
                "input_tokens": 7,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 3,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 10,
            })
        );
        assert_eq!(names(&events).last(), Some(&"response.incomplete"));
    }
}

#[tokio::test]
async fn every_field_is_there_and_what_clients_always_send_is_taken() {
    let server = Served::answering(["one"]).await;
    let asked = json!({
        "input": [{"role": "user", "content": "hi"}],
        "temperature": 0.5, "top_p": 1, "max_output_tokens": 9, "max_tool_calls": 2, "reasoning": {"effort": "low"},
        "tool_choice": "auto", "parallel_tool_calls": false, "truncation": "auto", "include": [], "user": "ann",
        "safety_identifier": "x", "service_tier": "auto", "prompt_cache_key": "k", "top_logprobs": 0,
        "text": {"format": {"type": "text"}, "verbosity": "low"}, "stream_options": {"include_obfuscation": false},
        "chat_id": "of a front end",
    });

    let response = server.respond(asked).await.json();

    for field in [
        "id",
        "object",
        "created_at",
        "completed_at",
        "status",
        "background",
        "model",
        "output",
        "error",
        "incomplete_details",
        "instructions",
        "metadata",
        "previous_response_id",
        "conversation",
        "store",
        "parallel_tool_calls",
        "temperature",
        "top_p",
        "tool_choice",
        "tools",
        "text",
        "truncation",
        "max_output_tokens",
        "usage",
    ] {
        assert!(response.get(field).is_some(), "{field}");
    }
    // The model did not report its usage.
    assert_eq!(response["usage"], Value::Null);
    assert_eq!(response["text"], json!({"format": {"type": "text"}}));
}

#[tokio::test]
async fn only_failures_that_are_worth_repeating_say_so() {
    let failures = [
        (Error::internal("broken"), "invalid_request_error", "invalid_turn"),
        (Error::unavailable("away"), "server_error", "server_error"),
        (
            Error::resource_exhausted("much"),
            "rate_limit_error",
            "rate_limit_exceeded",
        ),
    ];
    for (failure, kind, code) in failures {
        let server = Served::answering([Reply::error(failure)]).await;

        let error = server.respond(json!({"input": "hi"})).await.json()["error"].clone();

        assert_eq!((&error["type"], &error["code"]), (&json!(kind), &json!(code)));
        assert_eq!(error["param"], Value::Null);
        assert!(error["message"].is_string());
    }
}

#[tokio::test]
async fn inputs_are_listed_in_pages() {
    let server = Served::answering(["one", "two"]).await;
    let said = |text: &str| json!({"role": "user", "content": text});
    server
        .respond(json!({"input": "before", "conversation": "c"}))
        .await
        .json();
    let asked = json!({"input": [said("1"), said("2"), said("3")], "conversation": "c"});
    let response = server.respond(asked).await.json();
    let path = format!("/responses/{}/input_items", response["id"].as_str().unwrap());
    let list = async |query: &str| server.get(&format!("{path}{query}")).await.json();
    let texts = |list: &Value| {
        let items = list["data"].as_array().unwrap().iter();
        items
            .map(|item| item["content"][0]["text"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };

    let newest = list("").await;
    let first = list("?order=asc&limit=2").await;
    let after = format!("?order=asc&after={}", first["last_id"].as_str().unwrap());
    let rest = list(&after).await;

    assert_eq!(newest["object"], "list");
    assert_eq!(texts(&newest), ["3", "2", "1"]);
    assert_eq!(texts(&first), ["1", "2"]);
    assert_eq!(
        (&first["has_more"], &first["first_id"]),
        (&json!(true), &first["data"][0]["id"])
    );
    assert_eq!(texts(&rest), ["3"]);
    assert_eq!(rest["has_more"], false);
    for (query, param) in [
        ("?limit=0", "limit"),
        ("?limit=101", "limit"),
        ("?limit=x", "limit"),
        ("?order=up", "order"),
    ] {
        let refused = server.get(&format!("{path}{query}")).await.error();
        assert_eq!((refused.0, refused.2), (400, json!(param)), "{query}");
    }
}

#[tokio::test]
async fn answers_must_be_whole_and_alone() {
    let server = Served::answering([call("ask")]).await;
    let asking = server.respond(json!({"input": "ask"})).await.json();
    let output = |id: &Value| json!({"type": "function_call_output", "call_id": id, "output": "x"});
    let user = json!({"role": "user", "content": "never mind"});
    let call_id = &asking["output"][0]["call_id"];

    for input in [
        json!([user]),
        json!([output(call_id), user]),
        json!([output(&json!("call_x_1"))]),
    ] {
        let body = json!({"input": input, "previous_response_id": asking["id"]});
        let (code, _, param) = server.respond(body).await.error();
        assert_eq!((code, param), (400, json!("input")), "{input}");
    }
    server.model.assert_calls(1);
}
