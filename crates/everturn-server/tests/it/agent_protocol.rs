//! Agents over HTTP: one turn per request, and the responses of companion actions.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentSession, CustomState, custom_agent};
use everturn_core::{ActionType, Registry};
use everturn_server::{Layout, Server};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::agents::{parrot, patient, says, says_in};
use crate::support::{Answer, Served};

const RUN: &str = "/agents/parrot";

async fn with_store() -> Served {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    Served::of(&registry).await
}

async fn without_store() -> Served {
    let registry = Registry::new();
    parrot(&registry, None);
    Served::of(&registry).await
}

fn last_event(events: &[Value]) -> &Value {
    events.last().unwrap()
}

#[tokio::test]
async fn a_turn_is_streamed_and_ends_with_its_output() {
    let server = with_store().await;

    let events = server.stream(RUN, &says("leek soup")).await.events();

    let texts: Vec<&Value> = events
        .iter()
        .filter_map(|event| event.pointer("/message/modelChunk/content/0/text"))
        .collect();
    assert_eq!(texts, ["leek ", "soup"]);
    let turn_end = &events[events.len() - 2]["message"]["turnEnd"];
    let result = &last_event(&events)["result"];
    assert_eq!(result["finishReason"], "stop");
    assert_eq!(result["snapshotId"], turn_end["snapshotId"]);
    assert_eq!(result["message"]["content"][0]["text"], "leek soup");
}

#[tokio::test]
async fn a_conversation_continues_over_several_requests() {
    let server = with_store().await;

    let first = server.post(RUN, &says("one")).await.result();
    let second = says_in("two", &json!({ "snapshotId": first["snapshotId"] }));
    let second = server.post(RUN, &second).await.result();
    let lookup = json!({ "data": { "sessionId": first["sessionId"] } });
    let latest = server.post("/agents/parrot/getSnapshot", &lookup).await.result();

    assert_eq!(latest["snapshotId"], second["snapshotId"]);
    assert_eq!(latest["parentId"], first["snapshotId"]);
    assert_eq!(latest["state"]["messages"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_client_that_keeps_the_state_sends_it_back() {
    let server = without_store().await;

    let first = server.post(RUN, &says("one")).await.result();
    let second = says_in("two", &json!({ "state": first["state"] }));
    let second = server.post(RUN, &second).await.result();

    assert_eq!(second["sessionId"], first["sessionId"]);
    assert_eq!(second["state"]["messages"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_failed_turn_is_an_answer_and_not_a_failed_request() {
    let server = with_store().await;

    let unary = server.post(RUN, &says("fail")).await;
    let events = server.stream(RUN, &says("fail")).await.events();

    assert_eq!(unary.result()["finishReason"], "failed");
    assert_eq!(unary.result()["error"]["status"], "INTERNAL");
    assert_eq!(last_event(&events)["result"]["finishReason"], "failed");
}

#[tokio::test]
async fn a_rejected_init_is_a_status_or_the_one_event_of_a_stream() {
    let server = with_store().await;
    let body = says_in("hi", &json!({ "snapshotId": "missing" }));

    let unary = server.post(RUN, &body).await;
    let streamed = server.stream(RUN, &body).await;

    unary.assert_failure(404, "NOT_FOUND");
    assert_eq!(streamed.status, 200);
    assert_eq!(
        streamed.events(),
        [json!({ "error": { "status": "NOT_FOUND", "message": "snapshot 'missing' was not found" } })]
    );
}

#[tokio::test]
async fn an_init_for_a_companion_is_refused_before_a_stream_begins() {
    let server = with_store().await;
    let body = json!({ "data": { "snapshotId": "x" }, "init": {} });

    let answer = server.stream("/agents/parrot/getSnapshot", &body).await;

    answer.assert_failure(400, "INVALID_ARGUMENT");
    assert!(answer.json()["message"].as_str().unwrap().contains("'init'"));
}

#[tokio::test]
async fn unknown_fields_are_refused_except_those_that_the_python_client_sends() {
    let server = with_store().await;
    let unknown_init = says_in("hi", &json!({ "snapshotID": "x" }));
    let unknown_input = json!({ "data": { "messages": [] } });
    let no_data = json!({ "init": { "sessionId": "mine" } });
    let with_metadata = json!({ "data": {
        "message": { "role": "user", "content": [{ "text": "hi" }] },
        "resume": { "respond": [], "restart": [], "metadata": { "from": "python" } },
    } });

    for wrong in [&unknown_init, &unknown_input, &no_data] {
        server
            .post(RUN, wrong)
            .await
            .assert_failure(400, "INVALID_ARGUMENT");
    }
    assert_eq!(
        server.post(RUN, &with_metadata).await.result()["finishReason"],
        "stop"
    );
}

#[tokio::test]
async fn background_work_is_begun_waited_for_and_aborted() {
    let registry = Registry::new();
    let gate = CancellationToken::new();
    patient(&registry, Some(Arc::new(MemoryStore::new())), &gate);
    let server = Served::of(&registry).await;
    let mut body = says("plan the week");
    body["data"]["detach"] = true.into();

    let output = server.post("/agents/patient", &body).await.result();
    let id = json!({ "data": { "snapshotId": output["snapshotId"] } });
    let pending = server.post("/agents/patient/getSnapshot", &id).await.result();
    let aborted = server.post("/agents/patient/abort", &id).await.result();
    let unknown = json!({ "data": { "snapshotId": "unknown" } });
    let unknown = server.post("/agents/patient/abort", &unknown).await;

    assert_eq!(output["finishReason"], "detached");
    assert_eq!(pending["status"], "pending");
    assert_eq!(aborted["status"], "aborted");
    unknown.assert_failure(404, "NOT_FOUND");
}

#[tokio::test]
async fn an_agents_routes_follow_what_it_can_do() {
    let registry = Registry::new();
    parrot(&registry, None);
    patient(
        &registry,
        Some(Arc::new(MemoryStore::new())),
        &CancellationToken::new(),
    );

    let paths: Vec<String> = Layout::default()
        .routes(&registry)
        .into_iter()
        .filter(|route| route.method == "POST")
        .map(|route| route.path)
        .collect();

    assert_eq!(
        paths[..],
        [
            "/agents/parrot",
            "/agents/patient",
            "/agents/patient/getSnapshot",
            "/agents/patient/abort",
            "/agents/patient/listSnapshots",
            "/agents/patient/getSession",
            "/agents/patient/watch",
            "/agents/patient/listSessions",
            "/agents/patient/tree",
            "/agents/patient/diff",
            "/agents/patient/usage",
            "/agents/patient/label",
            "/agents/patient/fork",
            "/agents/patient/copy",
            "/agents/patient/export",
            "/agents/patient/import",
            "/agents/patient/delete",
            "/agents/patient/listTenants",
            "/agents/patient/deleteTenant",
            "/agents/patient/retain",
        ]
    );
}

#[tokio::test]
async fn any_companion_can_be_given_a_route() {
    let registry = Registry::new();
    parrot(&registry, None);
    let praise = ActionType::new("agent-praise");
    let action = everturn_core::Action::new(praise.clone(), "parrot", |(): (), _| async { Ok(true) });
    registry.register(Arc::new(action)).unwrap();

    let layout = Layout::default().agents_at("/birds").companion(praise, "praise");
    let server = Served::start(Server::new(&registry).routes(layout.routes(&registry))).await;

    assert_eq!(
        server.post("/birds/parrot/praise", &json!({})).await.result(),
        true
    );
    server.post(RUN, &says("hi")).await.assert_no_such_path();
}

/// How clients of other runtimes distinguish a missing route from an action that found nothing.
fn is_missing_route(answer: &Answer) -> [bool; 2] {
    let body: Option<Value> = serde_json::from_str(&answer.body).ok();
    let status = body.as_ref().and_then(|body| body["status"].as_str());
    let javascript = answer.status == 404 && status.is_none();
    let is_text = body.is_none() && answer.body.trim() != "404 page not found";
    let go = answer.status == 404 && status.is_none_or(str::is_empty) && !is_text;
    [javascript, go]
}

#[tokio::test]
async fn a_path_without_a_route_differs_from_an_action_that_found_nothing() {
    let registry = Registry::new();
    parrot(&registry, None);
    patient(
        &registry,
        Some(Arc::new(MemoryStore::new())),
        &CancellationToken::new(),
    );
    let server = Served::of(&registry).await;
    let id = json!({ "data": { "snapshotId": "unknown" } });

    for path in [
        "/agents/patient/waitForSnapshot",
        "/agents/parrot/getSnapshot",
        "/agents/parrot/abort",
        "/agents/nobody",
        "/elsewhere",
    ] {
        let missing = server.post(path, &id).await;
        assert_eq!(is_missing_route(&missing), [true, true], "{path}: {missing:?}");
        missing.assert_no_such_path();
    }
    let unknown = server.post("/agents/patient/getSnapshot", &id).await;
    assert_eq!(is_missing_route(&unknown), [false, false], "{unknown:?}");
}

#[tokio::test]
async fn a_companion_reads_metadata_alone_and_ignores_fields_of_later_versions() {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    let server = Served::of(&registry).await;
    let output = server.post(RUN, &says("hi")).await.result();
    let (id, session) = (&output["snapshotId"], &output["sessionId"]);
    let read = async |data: Value| {
        let answer = server
            .post("/agents/parrot/getSnapshot", &json!({ "data": data }))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.result()
    };

    let mut whole = read(json!({ "snapshotId": id, "future": 1 })).await;
    let by_id = read(json!({ "snapshotId": id, "metadataOnly": true })).await;
    let by_session = read(json!({ "sessionId": session, "metadataOnly": true })).await;
    let aborted = json!({ "data": { "snapshotId": id, "future": 1 } });
    let aborted = server.post("/agents/parrot/abort", &aborted).await;

    assert!(whole["state"].is_object(), "{whole}");
    whole.as_object_mut().unwrap().remove("state");
    assert_eq!(by_id, whole);
    assert_eq!(by_session, whole);
    assert_eq!(aborted.result()["status"], "completed");
}

/// An agent whose custom state is an `S`.
fn keeping<S: CustomState>(store: &Arc<MemoryStore>, change: fn(&mut S)) -> Registry {
    let registry = Registry::new();
    let function = move |session: AgentSession<S>| async move {
        session
            .run(|turn| async move {
                turn.update_custom(change);
                Ok(())
            })
            .await?;
        Ok(session.result())
    };
    let agent = custom_agent(&registry, "parrot", function).store(Arc::clone(store));
    agent.define().unwrap();
    registry
}

#[tokio::test]
async fn a_stored_state_that_the_program_cannot_read_is_a_failed_precondition_without_its_content() {
    let store = Arc::new(MemoryStore::new());
    let before = Served::of(&keeping::<String>(&store, |state| state.push_str("a secret"))).await;
    let after = Served::of(&keeping::<u64>(&store, |_| {})).await;
    let first = before.post(RUN, &says("one")).await.result();
    let next = says_in("two", &json!({ "sessionId": first["sessionId"] }));

    let refused = after.post(RUN, &next).await;
    let goes_on = before.post(RUN, &next).await;

    refused.assert_failure(400, "FAILED_PRECONDITION");
    assert_eq!(refused.json()["details"]["reason"], "state-unreadable");
    assert!(
        refused.body.contains("cannot read the stored state"),
        "{}",
        refused.body
    );
    assert!(!refused.body.contains("secret"), "{}", refused.body);
    assert_eq!(goes_on.status, 200);
}
