//! Flows over HTTP: what other servers were recorded to answer, this one answers too.

use everturn_core::stream_log::MemoryStreamLog;
use everturn_core::{Action, ActionType, Context, Emitter, Error, Registry};
use everturn_server::{Provided, Server, context_fn};
use everturn_testkit::conformance::{cases, load};
use serde_json::{Value, json};

use crate::support::{Answer, Served, answer};

/// The flow of the recordings: counts, fails on purpose at 3, by accident at 4, and returns the values of its
/// context.
fn recorded_flow() -> Registry {
    let count = |to: u32, context: Context, emitter: Emitter<Value>| async move {
        for count in 0..to {
            emitter.send(json!({ "count": count })).await?;
        }
        match to {
            3 => Err(Error::not_found("nope")
                .with_public()
                .with_details(json!({ "a": 1 }))
                .into()),
            4 => Err(std::io::Error::other("the disk is on fire").into()),
            done => Ok(json!({ "done": done, "ctx": context.values() })),
        }
    };
    let registry = Registry::new();
    let flow = Action::streaming(ActionType::FLOW, "count", count);
    registry.register(std::sync::Arc::new(flow)).unwrap();
    registry
}

/// The context provider of the recordings.
fn provider(server: Server) -> Server {
    server.context(context_fn(|request| {
        let header = request.header("x-test").ok_or_else(|| {
            Error::permission_denied("who are you?").with_public_message("Permission Denied")
        })?;
        let auth = json!({ "m": request.method.as_str(), "h": header, "i": request.input });
        Ok(Provided::anonymous("recorded").with_value("auth", auth))
    }))
}

/// A recorded body as this server has it: errors are events like all others, and a private message is the
/// status's label.
fn translated(recorded: &Value) -> String {
    let body = recorded["body"].as_str().unwrap();
    body.replace("error: {\"error\"", "data: {\"error\"")
        .replace("Internal Error", "internal error")
}

#[track_caller]
fn assert_recorded(answer: &Answer, recorded: &Value) {
    assert_eq!(answer.status, recorded["status"], "{answer:?}");
    let expected = translated(recorded);
    if expected.starts_with("data: ") {
        let expected = Answer {
            status: answer.status,
            headers: answer.headers.clone(),
            body: expected,
        };
        assert_eq!(answer.events(), expected.events());
    } else {
        assert_eq!(answer.json(), serde_json::from_str::<Value>(&expected).unwrap());
    }
}

#[tokio::test]
async fn unary_calls_are_answered_as_recorded() {
    let Some(recorded) = load("observed/js-flow-http.json") else {
        return;
    };
    let server = Served::of(&recorded_flow()).await;

    let call = async |data: Value| server.post("/flows/count", &json!({ "data": data })).await;

    assert_recorded(&call(json!(2)).await, &recorded["unary_ok"]);
    assert_recorded(&call(json!(3)).await, &recorded["unary_user_error"]);
    assert_recorded(&call(json!(4)).await, &recorded["unary_plain_error"]);
}

#[tokio::test]
async fn streamed_calls_are_answered_as_recorded() {
    let Some(recorded) = load("observed/js-flow-http.json") else {
        return;
    };
    let server = Served::of(&recorded_flow()).await;

    let by_query = server
        .post("/flows/count?stream=true", &json!({ "data": 2 }))
        .await;
    let by_header = server.stream("/flows/count", &json!({ "data": 2 })).await;
    let failed = server.stream("/flows/count", &json!({ "data": 3 })).await;
    let broken = server.stream("/flows/count", &json!({ "data": 4 })).await;

    assert_recorded(&by_query, &recorded["stream_query"]);
    assert_recorded(&by_header, &recorded["stream_accept"]);
    assert_recorded(&failed, &recorded["stream_user_error"]);
    assert_recorded(&broken, &recorded["stream_plain_error"]);
    assert_eq!(by_header.header("content-type"), Some("text/event-stream"));
    assert_eq!(by_header.header("cache-control"), Some("no-cache"));
}

#[tokio::test]
async fn an_input_that_does_not_fit_is_refused_with_its_position_as_recorded() {
    let Some(recorded) = load("observed/js-flow-http.json") else {
        return;
    };
    let server = Served::of(&recorded_flow()).await;

    let wrong = server.post("/flows/count", &json!({ "data": "x" })).await;
    let missing = server.post("/flows/count", &json!({})).await;

    for (answer, recorded) in [
        (&wrong, &recorded["unary_bad_input"]),
        (&missing, &recorded["no_data"]),
    ] {
        let expected: Value = serde_json::from_str(recorded["body"].as_str().unwrap()).unwrap();
        assert_eq!(answer.status, recorded["status"], "{answer:?}");
        assert_eq!(answer.json()["status"], expected["status"]);
        assert!(
            answer.json()["details"]["errors"][0]["message"].is_string(),
            "{answer:?}"
        );
        assert!(
            !answer.body.contains("\"x\""),
            "the value must not come back: {answer:?}"
        );
    }
}

#[tokio::test]
async fn context_providers_are_asked_as_recorded() {
    let Some(recorded) = load("observed/js-flow-http.json") else {
        return;
    };
    let server = provider(Server::new(&recorded_flow()).stream_log(MemoryStreamLog::new()));
    let server = Served::start(server).await;
    let streamed = || {
        let request = server.request("/flows/count", &json!({ "data": 2 }));
        request
            .header("x-test", "v")
            .header("accept", "text/event-stream")
    };

    let denied = server.post("/flows/count", &json!({ "data": 2 })).await;
    let first = answer(streamed()).await;
    let id = first.header("x-genkit-stream-id").unwrap().to_owned();
    let replayed = answer(streamed().header("x-genkit-stream-id", &id)).await;
    let unknown = answer(streamed().header("x-genkit-stream-id", "no-such-stream")).await;

    assert_recorded(&denied, &recorded["context_denied"]);
    assert_recorded(&first, &recorded["durable_first"]);
    assert_recorded(&replayed, &recorded["durable_replay"]);
    assert_eq!(unknown.status, recorded["durable_unknown"]["status"]);
    assert_eq!(unknown.body, "");
}

#[tokio::test]
async fn the_published_flow_case_holds() {
    let Some(cases) = cases("flow_server_tests.yaml") else {
        return;
    };
    let registry = Registry::new();
    let streamy = |to: u32, emitter: Emitter<Value>| async move {
        for count in 0..to {
            emitter.send(json!({ "count": count })).await?;
        }
        Ok(format!("done {to}, streamed: {to} times"))
    };
    registry.define_streaming_flow("streamy", streamy).unwrap();
    let server = Served::of(&registry).await;

    for case in cases {
        let path = format!("/flows/{}", case["path"].as_str().unwrap());
        let body = json!({ "data": case["post"]["data"] });
        let times = case["post"]["data"].as_u64().unwrap();
        let expected = |field: &str, count: u64| {
            let text = case["response"][field].as_str().unwrap();
            text.replace("{count}", &count.to_string())
        };

        let events = server.stream(&path, &body).await.events();

        let (result, messages) = events.split_last().unwrap();
        for (count, message) in messages.iter().enumerate() {
            assert_eq!(message["message"].to_string(), expected("message", count as u64));
        }
        assert_eq!(messages.len() as u64, times);
        assert_eq!(result["result"], expected("result", times));
        assert_eq!(
            server.post(&path, &body).await.result(),
            expected("result", times)
        );
    }
}

#[tokio::test]
async fn a_flow_that_does_not_stream_still_answers_a_stream() {
    let registry = Registry::new();
    registry
        .define_flow("double", |n: i64| async move { Ok(n * 2) })
        .unwrap();
    let server = Served::of(&registry).await;

    let events = server
        .stream("/flows/double", &json!({ "data": 21 }))
        .await
        .events();

    assert_eq!(events, [json!({ "result": 42 })]);
}

#[tokio::test]
async fn a_flow_without_input_needs_no_body() {
    let registry = Registry::new();
    registry
        .define_flow("now", |(): ()| async move { Ok("now".to_owned()) })
        .unwrap();
    let server = Served::of(&registry).await;

    let without = server.client.post(server.url("/flows/now"));
    let without = answer(without.header("content-type", "application/json")).await;
    let with = server.post("/flows/now", &json!({ "data": null })).await;

    assert_eq!(without.result(), "now");
    assert_eq!(with.result(), "now");
}

#[tokio::test]
async fn a_panic_is_an_internal_error_and_the_server_continues() {
    let registry = Registry::new();
    let fragile = |fall: bool| async move {
        assert!(!fall, "the secret is 42");
        Ok(true)
    };
    registry.define_flow("fragile", fragile).unwrap();
    let server = Served::of(&registry).await;

    let fallen = server.post("/flows/fragile", &json!({ "data": true })).await;
    let streamed = server.stream("/flows/fragile", &json!({ "data": true })).await;
    let standing = server.post("/flows/fragile", &json!({ "data": false })).await;

    fallen.assert_failure(500, "INTERNAL");
    assert_eq!(streamed.events()[0]["error"]["status"], "INTERNAL");
    assert!(!fallen.body.contains("42") && !streamed.body.contains("42"));
    assert_eq!(standing.result(), true);
}
