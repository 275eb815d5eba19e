//! Errors from which the clients' exceptions are made.

use everturn_agent::{Delegation, agent};
use everturn_core::Registry;
use everturn_server::BearerTokens;
use everturn_testkit::{Gate, Reply, ScriptedModel};
use serde_json::{Map, Value, json};

use crate::support::{Served, answer, paint};

#[tokio::test]
async fn faults_name_what_is_wrong() {
    let server = Served::answering(["never"]).await;
    for (path, body, code, reason, param) in [
        (
            "/responses",
            json!({"input": "hi"}),
            400,
            "missing_required_parameter",
            json!("model"),
        ),
        (
            "/responses",
            json!({"model": "keeper"}),
            400,
            "missing_required_parameter",
            json!("input"),
        ),
        (
            "/responses",
            json!({"model": "nobody", "input": "hi"}),
            404,
            "model_not_found",
            json!("model"),
        ),
        (
            "/responses",
            json!({"model": "keeper", "input": "hi", "previous_response_id": "resp_x_6b"}),
            400,
            "previous_response_not_found",
            json!("previous_response_id"),
        ),
        (
            "/responses",
            json!({"model": "keeper", "input": "hi", "tools": [{"type": "web_search"}]}),
            400,
            "unsupported_value",
            json!("tools[0].type"),
        ),
        (
            "/responses",
            json!({"model": "keeper", "input": "hi", "text": {"format": {"type": "json_object"}}}),
            400,
            "unsupported_parameter",
            json!("text.format"),
        ),
        (
            "/responses",
            json!({"model": "forgetful", "input": "hi", "background": true}),
            400,
            "unsupported_value",
            json!("background"),
        ),
        (
            "/chat/completions",
            json!({"model": "keeper"}),
            400,
            "missing_required_parameter",
            json!("messages"),
        ),
        (
            "/chat/completions",
            json!({"model": "keeper", "n": 2, "messages": []}),
            400,
            "unsupported_parameter",
            json!("n"),
        ),
    ] {
        let answer = server.post(path, body.clone()).await;

        assert_eq!(answer.error(), (code, reason.to_owned(), param), "{body}");
    }
    server.model.assert_calls(0);
}

#[tokio::test]
async fn what_a_turn_cannot_have_is_named() {
    let server = Served::answering(["never"]).await;
    let file = json!([{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]);
    let output = json!([{"type": "function_call_output", "call_id": "c", "output": "x"}]);
    let last = json!([{"role": "assistant", "content": "I am last."}]);
    let many: Map<String, Value> = (0..17).map(|key| (key.to_string(), json!(""))).collect();
    for (fields, reason, param) in [
        (json!({"prompt": {"id": "p"}}), "unsupported_parameter", "prompt"),
        (
            json!({"metadata": {"key": "x".repeat(513)}}),
            "invalid_value",
            "metadata",
        ),
        (
            json!({"metadata": {"k".repeat(65): "x"}}),
            "invalid_value",
            "metadata",
        ),
        (json!({"metadata": many}), "invalid_value", "metadata"),
        (
            json!({"conversation": "c", "previous_response_id": "resp_x_6b"}),
            "invalid_value",
            "conversation",
        ),
        (
            json!({"input": file}),
            "unsupported_value",
            "input[0].content[0].file_id",
        ),
        (
            json!({"background": true, "store": false}),
            "unsupported_value",
            "background",
        ),
        (json!({"input": output}), "invalid_value", "input"),
        (
            json!({"model": "forgetful", "input": last}),
            "invalid_value",
            "input",
        ),
    ] {
        let mut body = json!({"input": "hi"});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());

        let refused = server.respond(body).await.error();

        assert_eq!(refused, (400, reason.to_owned(), json!(param)), "{fields}");
    }
    let messages = json!([{"role": "tool", "tool_call_id": "c", "content": "x"}]);
    let body = json!({"model": "keeper", "messages": messages});
    let refused = server.post("/chat/completions", body).await.error();
    assert_eq!(refused, (400, "invalid_value".into(), json!("messages")));
    server.model.assert_calls(0);
}

#[tokio::test]
async fn a_function_may_not_be_called_like_a_tool_of_the_agent() {
    let server = Served::answering(["never"]).await;
    let mut tool = paint();
    tool["name"] = json!("look");

    let refused = server
        .respond(json!({"input": "hi", "tools": [tool], "stream": true}))
        .await;

    assert_eq!(refused.error().0, 400);
    server.model.assert_calls(0);
}

#[tokio::test]
async fn a_body_that_is_not_sent_as_json_is_refused_in_this_form() {
    let server = Served::answering(["one", "two", "three"]).await;
    let body = json!({"model": "keeper", "input": "hi", "messages": [{"role": "user", "content": "hi"}]})
        .to_string();
    let sent = |path: &str, kind: Option<&str>| {
        let request = server.request("POST", path).body(body.clone());
        answer(match kind {
            Some(kind) => request.header("content-type", kind),
            None => request,
        })
    };

    for path in ["/responses", "/chat/completions", "/conversations"] {
        for kind in [
            Some("text/plain"),
            Some("application/x-www-form-urlencoded"),
            None,
        ] {
            assert_eq!(sent(path, kind).await.error().0, 415, "{path} {kind:?}");
        }
    }
    server.model.assert_calls(0);
    let charset = sent("/responses", Some("application/json; charset=utf-8"))
        .await
        .json();
    // Clients of OpenAI cancel and delete without a body.
    let path = format!("/responses/{}", charset["id"].as_str().unwrap());
    let cancelled = answer(server.request("POST", &format!("{path}/cancel"))).await;
    assert_ne!(cancelled.status, 415, "{}", cancelled.body);
    assert_eq!(answer(server.request("DELETE", &path)).await.status, 200);
}

#[tokio::test]
async fn refusals_of_the_server_have_this_form_too() {
    let model = ScriptedModel::new().replies(["one", "two"]);
    let tokens = BearerTokens::new([("ann", "ann-key"), ("bob", "bob-key")]);
    let server = Served::with(model, |server| server.context(tokens)).await;
    let ask = |key: &str| {
        let body = json!({"model": "keeper", "input": "hi", "conversation": "c"});
        server
            .request("POST", "/responses")
            .bearer_auth(key.to_owned())
            .json(&body)
    };

    let unknown = answer(ask("nobody's")).await;
    let anns = answer(ask("ann-key")).await.json();
    let path = format!("/responses/{}", anns["id"].as_str().unwrap());
    let foreign = answer(server.request("GET", &path).bearer_auth("bob-key")).await;
    let missing = answer(
        server
            .request("GET", "/responses/resp_x_6b")
            .bearer_auth("bob-key"),
    )
    .await;

    assert_eq!(unknown.error(), (401, "invalid_api_key".into(), json!(null)));
    assert!(unknown.headers.contains_key("x-request-id"));
    assert_eq!(foreign.error(), (404, "response_not_found".into(), json!(null)));
    assert_eq!(missing.error().0, 404);
    // A conversation of the same name is another one.
    let bobs = answer(ask("bob-key")).await.json();
    assert_eq!(bobs["previous_response_id"], json!(null));
}

#[tokio::test]
async fn bodies_may_be_larger_than_elsewhere_and_not_endless() {
    let server = Served::answering(["ok"]).await;

    let large = server
        .respond(json!({"input": "x".repeat(5 * 1024 * 1024)}))
        .await;
    let too_large = server
        .respond(json!({"input": "x".repeat(17 * 1024 * 1024)}))
        .await;
    let json = server
        .request("POST", "/responses")
        .header("content-type", "application/json");
    let broken = answer(json.body("{")).await;

    assert_eq!(large.status, 200);
    assert_eq!(too_large.error().0, 413);
    assert_eq!(broken.error().0, 400);
}

#[tokio::test]
async fn agents_are_models() {
    let server = Served::answering(["never"]).await;

    let list = server.get("/models").await.json();

    let ids: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].clone())
        .collect();
    assert_eq!(ids, ["forgetful", "keeper", "shaper", "strict"]);
    assert_eq!(server.get("/models/keeper").await.json()["object"], "model");
    assert_eq!(server.get("/models/nobody").await.error().1, "model_not_found");
    assert_eq!(server.get("/files").await.error().0, 404);
    for path in ["/responses/compact", "/responses/input_tokens", "/assistants"] {
        assert_eq!(server.post(path, json!({})).await.error().0, 404, "{path}");
    }
}

#[tokio::test]
async fn two_turns_at_once_in_a_conversation_are_refused_for_a_moment() {
    let gate = Gate::new();
    let model = ScriptedModel::new().reply(Reply::text("One.").wait(&gate));
    let server = Served::with(model, |server| server).await;
    let turn = json!({"input": "hi", "conversation": "c"});

    let (first, busy) = tokio::join!(server.respond(turn.clone()), async {
        gate.reached().await;
        let busy = server.respond(turn.clone()).await;
        gate.open();
        busy
    });

    assert_eq!(busy.error(), (409, "conversation_busy".into(), Value::Null));
    assert!(busy.headers.contains_key("retry-after-ms"));
    assert_eq!(first.json()["status"], "completed");
    assert!(first.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn a_conversation_whose_tip_is_in_the_background_takes_no_turn() {
    let gate = Gate::new();
    let model = ScriptedModel::new().reply(Reply::text("Done.").wait(&gate));
    let server = Served::with(model, |server| server).await;
    let turn = json!({"input": "work", "conversation": "c", "background": true});
    server.respond(turn).await.json();

    let response = server.respond(json!({"input": "hi", "conversation": "c"})).await;
    let body = json!({
        "model": "keeper", "messages": [{"role": "user", "content": "hi"}],
        "metadata": {"conversation_id": "c"},
    });
    let completion = server.post("/chat/completions", body).await;

    assert_eq!(response.error().0, 400);
    assert_eq!(completion.error().0, 400);
}

#[tokio::test]
async fn an_agent_that_another_delegates_to_is_no_model() {
    let define = |registry: &Registry| {
        let team = Delegation::to(["scout"]);
        agent(registry, "boss").use_middleware(team).define().unwrap();
        agent(registry, "scout").define().unwrap();
    };
    let server = Served::beside(define, ScriptedModel::new(), |server| server).await;

    let listed = server.get("/models").await.body;
    let called = json!({"model": "scout", "input": "hi"});

    assert!(listed.contains("boss") && !listed.contains("scout"), "{listed}");
    assert_eq!(server.get("/models/scout").await.error().1, "model_not_found");
    assert_eq!(
        server.post("/responses", called).await.error().1,
        "model_not_found"
    );
}
