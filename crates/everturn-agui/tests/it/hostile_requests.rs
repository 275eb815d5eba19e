//! Requests that are wrong, foreign or too large.

use everturn_core::Error;
use everturn_server::{BearerTokens, CallRequest, Provided, context_fn};
use everturn_testkit::ScriptedModel;
use serde_json::{Value, json};

use crate::support::{Served, answer, types, user};

#[tokio::test]
async fn wrong_values_are_refused_by_name_before_any_stream() {
    let server = Served::answering(["never"]).await;
    let body = |change: Value| {
        let mut body = json!({"threadId": "t", "runId": "r", "messages": [user("u1", "hi")]});
        body.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        body
    };
    for (change, named) in [
        (json!({"threadId": 1}), "threadId"),
        (json!({"threadId": ""}), "threadId"),
        (json!({"runId": null}), "runId"),
        (json!({"messages": {}}), "messages"),
        (
            json!({"messages": [{"role": "user", "content": "hi"}]}),
            "messages[0]",
        ),
        (
            json!({"messages": [{"id": "u", "role": "user", "content": 5}]}),
            "messages[0].content",
        ),
        (
            json!({"messages": [{"id": "u", "role": "user"}]}),
            "messages[0].content",
        ),
        (
            json!({"messages": [{"id": "x", "role": "tool", "content": "a"}]}),
            "toolCallId",
        ),
        (json!({"tools": [{"description": "no name"}]}), "tools[0]"),
        (
            json!({"resume": [{"interruptId": "a", "status": "maybe"}]}),
            "resume[0].status",
        ),
        (json!({"context": "page"}), "context"),
    ] {
        let refused = server.post("/agui/keeper", &body(change.clone())).await;

        let (code, status, message) = refused.error();
        assert_eq!((code, status.as_str()), (400, "INVALID_ARGUMENT"), "{change}");
        assert!(message.contains(named), "{change}: {message}");
    }
    let json = server
        .request("POST", "/agui/keeper")
        .header("content-type", "application/json");
    let broken = answer(json.body("{")).await;
    assert_eq!(broken.error().0, 400);
    assert_eq!(server.post("/agui/nobody", &body(json!({}))).await.error().0, 404);
    assert_eq!(
        server
            .post("/copilotkit/agent/keeper/fly", &json!({}))
            .await
            .error()
            .0,
        404
    );
    server.model.assert_calls(0);
}

#[tokio::test]
async fn bodies_may_be_larger_than_elsewhere_and_not_endless() {
    let server = Served::answering(["ok"]).await;

    let large = server
        .run("r1", json!([user("u1", &"x".repeat(5 * 1024 * 1024))]))
        .await;
    let too_large = server
        .run("r2", json!([user("u1", &"x".repeat(17 * 1024 * 1024))]))
        .await;

    assert_eq!(large.status, 200);
    assert_eq!(too_large.error().0, 413);
}

#[tokio::test]
async fn a_body_that_is_not_sent_as_json_is_refused() {
    let server = Served::answering(["one", "two"]).await;
    let body = json!({"threadId": "t", "runId": "r", "messages": [user("u1", "hi")]}).to_string();
    let sent = |path: &str, kind: Option<&str>| {
        let request = server.request("POST", path).body(body.clone());
        answer(match kind {
            Some(kind) => request.header("content-type", kind),
            None => request,
        })
    };

    for path in [
        "/agui/keeper",
        "/agui/keeper/connect",
        "/copilotkit/agent/keeper/run",
        "/copilotkit/info",
    ] {
        for kind in [Some("text/plain"), Some("multipart/form-data"), None] {
            let refused = sent(path, kind).await.error();
            assert_eq!(
                (refused.0, refused.1.as_str()),
                (415, "INVALID_ARGUMENT"),
                "{path} {kind:?}"
            );
        }
    }
    server.model.assert_calls(0);
    let charset = sent("/agui/keeper", Some("application/json; charset=utf-8")).await;
    assert_eq!(charset.text(), "one");
    assert_eq!(server.get("/copilotkit/info").await.status, 200);
}

#[tokio::test]
async fn nothing_of_another_caller_is_seen() {
    let model = ScriptedModel::new().replies(["one", "other", "third"]);
    let tokens = BearerTokens::new([("ann", "ann-key"), ("bob", "bob-key")]);
    let server = Served::with(model, |server| server.context(tokens)).await;
    let ask = |key: &str, path: &str, run: &str, messages: Value| {
        let body = json!({"threadId": "t", "runId": run, "protocolVersion": "1.0", "messages": messages});
        answer(
            server
                .request("POST", path)
                .bearer_auth(key.to_owned())
                .json(&body),
        )
    };

    let anns = ask("ann-key", "/agui/keeper", "r1", json!([user("u1", "secret")])).await;
    let id = anns.events()[1]["messageId"].clone();
    // The same ids are another thread, and another run, for another caller.
    let bobs = ask("bob-key", "/agui/keeper", "r1", json!([user("u1", "hi")])).await;
    let bobs_thread = ask("bob-key", "/agui/keeper/connect", "c", json!([])).await;
    let guessed = json!([{"id": id, "role": "assistant", "content": "one"}, user("u2", "what did I say?")]);
    ask("bob-key", "/agui/keeper", "r2", guessed).await.end();
    let unknown = ask("nobody's", "/agui/keeper", "r1", json!([user("u1", "hi")])).await;

    assert_eq!(bobs.text(), "other");
    assert!(!bobs_thread.body.contains("secret") && !server.asked().join("").contains("secret"));
    assert_eq!(unknown.error().1, "UNAUTHENTICATED");
    let stop = server
        .request("POST", "/copilotkit/agent/keeper/stop/t")
        .bearer_auth("bob-key");
    assert_eq!(answer(stop).await.json(), json!({"stopped": false}));
}

#[tokio::test]
async fn ids_of_another_thread_name_nothing_here() {
    let server = Served::answering(["one", "two"]).await;
    let other = json!({"threadId": "other"});
    let run = server
        .run_of("keeper", "r1", json!([user("u1", "1")]), other)
        .await
        .events();

    let messages = json!([
        user("u1", "1"),
        {"id": run[1]["messageId"], "role": "assistant", "content": "one"},
        user("u2", "2"),
    ]);
    let here = server.run("r2", messages).await;

    assert_eq!(server.asked()[1..], ["user: 2".to_owned()]);
    assert!(types(&here.events()).contains(&"MESSAGES_SNAPSHOT"));
}

#[tokio::test]
async fn an_agent_that_is_refused_to_the_caller_is_not_there() {
    let guard = context_fn(|request: &CallRequest<'_>| {
        let is_refused = request.path == "/agents/keeper" && request.header("x-guest").is_some();
        if is_refused {
            return Err(Error::permission_denied("not for guests").with_public().into());
        }
        Ok(Provided::anonymous("all"))
    });
    let model = ScriptedModel::new().reply("One.");
    let server = Served::with(model, |server| server.context(guard)).await;
    let guest = |method: &str, path: &str| server.request(method, path).header("x-guest", "1");
    let body = json!({"threadId": "t", "runId": "r", "messages": [user("u1", "hi")]});

    for (method, path) in [
        ("POST", "/agui/keeper"),
        ("POST", "/agui/keeper/connect"),
        ("GET", "/agui/keeper"),
        ("POST", "/copilotkit/agent/keeper/run"),
        ("POST", "/copilotkit/agent/keeper/connect"),
        ("POST", "/copilotkit/agent/keeper/stop/t"),
    ] {
        let refused = answer(guest(method, path).json(&body)).await.error();
        let missing_path = path.replace("keeper", "nobody");
        let missing = answer(guest(method, &missing_path).json(&body)).await.error();
        assert_eq!(refused.0, 404, "{method} {path}");
        assert_eq!(
            refused.2,
            missing.2.replace("nobody", "keeper"),
            "{method} {path}"
        );
    }
    let names = |info: Value| info["agents"].as_object().unwrap().contains_key("keeper");
    assert!(!names(answer(guest("GET", "/copilotkit/info")).await.json()));
    assert!(names(server.get("/copilotkit/info").await.json()));
    server.model.assert_calls(0);
    assert_eq!(server.post("/agui/keeper", &body).await.text(), "One.");
}
