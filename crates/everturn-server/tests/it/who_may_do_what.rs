//! Callers are distinguished, see only their own rows, and learn nothing about those of others.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_core::{Action, ActionType, Context, Emitter, Error, Registry};
use everturn_server::{
    ApiKeys, BearerTokens, ContextProvider, Limits, Principal, Provided, Server, context_fn,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::agents::{parrot, parrot_in, patient, says, says_in};
use crate::support::counting::CountingStore;
use crate::support::{Answer, Served, answer};

const RUN: &str = "/agents/parrot";
const READ: &str = "/agents/parrot/getSnapshot";

fn tokens() -> BearerTokens {
    BearerTokens::new([("alice", "alice-token"), ("bob", "bob-token"), ("nobody", "")])
}

async fn served() -> Served {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    Served::start(Server::new(&registry).context(tokens())).await
}

async fn call(server: &Served, token: &str, path: &str, body: &Value) -> Answer {
    answer(server.request(path, body).bearer_auth(token)).await
}

fn by_snapshot(id: &Value) -> Value {
    json!({ "data": { "snapshotId": id } })
}

#[tokio::test]
async fn a_caller_without_a_good_token_is_refused() {
    let server = served().await;

    let without = server.post(RUN, &says("hi")).await;
    let wrong = call(&server, "carol-token", RUN, &says("hi")).await;
    let empty = call(&server, "", RUN, &says("hi")).await;
    let streamed = server.stream(RUN, &says("hi")).await;

    for refused in [without, wrong, empty, streamed] {
        refused.assert_failure(401, "UNAUTHENTICATED");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(call(&server, "alice-token", RUN, &says("hi")).await.status, 200);
}

#[tokio::test]
async fn each_caller_sees_its_own_conversations_only() {
    let server = served().await;
    let own = call(&server, "alice-token", RUN, &says("my secret"))
        .await
        .result();

    let alice = call(&server, "alice-token", READ, &by_snapshot(&own["snapshotId"])).await;
    let bob = call(&server, "bob-token", READ, &by_snapshot(&own["snapshotId"])).await;
    let same_session = says_in("hello", &json!({ "sessionId": own["sessionId"] }));
    let same_session = call(&server, "bob-token", RUN, &same_session).await.result();
    let read = by_snapshot(&same_session["snapshotId"]);
    let read = call(&server, "bob-token", READ, &read).await.result();

    assert_eq!(alice.result()["snapshotId"], own["snapshotId"]);
    bob.assert_failure(404, "NOT_FOUND");
    assert_eq!(
        read["state"]["messages"].as_array().unwrap().len(),
        2,
        "a conversation of bob's own"
    );
}

/// A request that names something by its id.
type Naming = fn(&str) -> Value;

#[tokio::test]
async fn a_foreign_a_forged_and_a_missing_id_are_indistinguishable() {
    let registry = Registry::new();
    let store = CountingStore::new(MemoryStore::new());
    parrot_in(&registry, Some(Arc::new(store.clone())));
    let server = Served::start(Server::new(&registry).context(tokens())).await;
    let own = call(&server, "alice-token", RUN, &says("my secret"))
        .await
        .result();
    let foreign = own["snapshotId"].as_str().unwrap().to_owned();
    let forged = format!("{}0", &foreign[..foreign.len() - 1]);
    let session = own["sessionId"].as_str().unwrap().to_owned();
    let snapshot: Naming = |id| json!({ "data": { "snapshotId": id } });
    let in_session: Naming = |id| json!({ "data": { "sessionId": id } });
    let told = |answer: &Answer, id: &str| {
        let headers: Vec<String> = answer.headers.keys().map(ToString::to_string).collect();
        (answer.status, answer.body.replace(id, "<id>"), headers)
    };

    for (path, body_of, status) in [
        (READ, snapshot, 404),
        (READ, in_session, 404),
        ("/agents/parrot/abort", snapshot, 404),
        ("/agents/parrot/watch", snapshot, 404),
        ("/agents/parrot/getSession", in_session, 404),
        ("/agents/parrot/tree", in_session, 404),
        ("/agents/parrot/usage", in_session, 404),
        (
            "/agents/parrot/diff",
            |id| json!({ "data": { "left": id, "right": id } }),
            404,
        ),
        // A session that was never started has no snapshots.
        ("/agents/parrot/listSnapshots", in_session, 200),
        (RUN, |id| says_in("hi", &json!({ "snapshotId": id })), 404),
    ] {
        let mut answers = Vec::new();
        for id in [foreign.as_str(), &forged, "missing", &session] {
            store.forget();
            let unary = call(&server, "bob-token", path, &body_of(id)).await;
            let asked = store.calls();
            let stream = server.request(path, &body_of(id)).bearer_auth("bob-token");
            let stream = answer(stream.header("accept", "text/event-stream")).await;
            // Equal work takes equal time: the store receives the same calls, equally often.
            answers.push((told(&unary, id), told(&stream, id), asked, store.calls()));
        }

        assert_eq!(answers[0].0.0, status, "{path}");
        assert!(!answers[0].2.is_empty(), "{path} asks the store");
        for answer in &answers {
            assert_eq!(answer, &answers[0], "{path}");
        }
    }
}

#[tokio::test]
async fn an_api_key_is_missing_wrong_or_right() {
    let registry = Registry::new();
    parrot(&registry, None);
    let keys = ApiKeys::new([("alice", "alice-key")]);
    let server = Served::start(Server::new(&registry).context(keys)).await;
    let with = |key: &str| answer(server.request(RUN, &says("hi")).header("x-api-key", key));

    server
        .post(RUN, &says("hi"))
        .await
        .assert_failure(401, "UNAUTHENTICATED");
    with("bob-key").await.assert_failure(403, "PERMISSION_DENIED");
    assert_eq!(with("alice-key").await.status, 200);
}

/// A flow that answers with its context.
fn showing_context() -> Registry {
    let registry = Registry::new();
    let show =
        |(): (), context: Context, _: Emitter<()>| async move { Ok(Value::Object(context.values().clone())) };
    let show = Action::streaming(ActionType::FLOW, "show", show);
    registry.register(Arc::new(show)).unwrap();
    registry
}

#[tokio::test]
async fn a_later_provider_adds_to_and_overrides_an_earlier_one() {
    let first = context_fn(|_| Ok(Provided::anonymous("all").with_value("a", 1).with_value("b", 1)));
    let second = context_fn(|request| Ok(Provided::new().with_value("b", request.path)));
    let server = Served::start(Server::new(&showing_context()).context(first.and(second))).await;

    let shown = server.post("/flows/show", &json!({})).await.result();

    assert_eq!(shown, json!({ "a": 1, "b": "/flows/show" }));
}

#[tokio::test]
async fn the_first_provider_that_fails_ends_the_request_with_its_status() {
    let denied = context_fn(|_| Err(Error::permission_denied("the list says no").into()));
    let never = context_fn(|_| panic!("nobody may ask after a refusal"));
    let server = Served::start(Server::new(&showing_context()).context(denied.and(never))).await;

    let answer = server.stream("/flows/show", &json!({})).await;

    answer.assert_failure(403, "PERMISSION_DENIED");
    assert_eq!(answer.json()["message"], "permission denied");
}

#[tokio::test]
async fn a_context_never_holds_the_credentials() {
    let server = Served::start(Server::new(&showing_context()).context(tokens())).await;

    let shown = call(&server, "alice-token", "/flows/show", &json!({})).await;

    assert_eq!(shown.result(), json!({ "auth": { "principal": "alice" } }));
}

#[tokio::test]
async fn a_caller_has_so_many_calls_at_once_and_no_more() {
    let registry = Registry::new();
    let gate = CancellationToken::new();
    patient(&registry, None, &gate);
    let limits = Limits::default().calls_per_principal(1);
    let server = Served::start(Server::new(&registry).context(tokens()).limits(limits)).await;
    let stream = |token: &str| {
        let request = server.request("/agents/patient", &says("hi")).bearer_auth(token);
        request.header("accept", "text/event-stream").send()
    };

    let mut first = stream("alice-token").await.unwrap();
    first.chunk().await.unwrap().unwrap();
    let second = call(&server, "alice-token", "/agents/patient", &says("hi")).await;
    let other = stream("bob-token").await.unwrap();
    gate.cancel();
    while first.chunk().await.unwrap().is_some() {}
    let later = call(&server, "alice-token", "/agents/patient", &says("hi")).await;

    second.assert_failure(429, "RESOURCE_EXHAUSTED");
    assert_eq!(second.header("retry-after"), Some("1"));
    assert_eq!(other.status().as_u16(), 200);
    assert_eq!(later.status, 200);
}

#[tokio::test]
async fn a_principal_named_like_the_default_tenant_is_not_it() {
    let scope = Principal::new("global").scope();

    assert_ne!(scope, everturn_agent::store::Scope::default());
}
