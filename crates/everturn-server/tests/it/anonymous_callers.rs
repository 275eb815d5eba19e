//! A call without a tenant is rejected on every route, unless the program declares its callers anonymous.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::routing::get;
use bytes::Bytes;
use everturn_agent::store::MemoryStore;
use everturn_core::stream_log::MemoryStreamLog;
use everturn_core::{Context, Principal, Registry, Status};
use everturn_server::{
    ArchiveAccess, ContextProvider, Limits, ProtocolAdapter, Provided, ServedAgents, Server, context_fn,
};
use serde_json::json;

use crate::support::agents::{parrot, says, says_in};
use crate::support::{Answer, Served, answer};

const RUN: &str = "/agents/parrot";

/// Answers with the agents that the caller may use.
struct Agents;

#[async_trait]
impl ProtocolAdapter for Agents {
    async fn handle(&self, _request: Request<Bytes>, context: Context) -> Response<Body> {
        let agents = context.extension::<ServedAgents>().unwrap();
        Response::new(agents.admit("parrot").await.to_string().into())
    }
}

fn registry() -> Registry {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    registry
        .define_flow("who", |(): (), caller: Option<Principal>| async move {
            Ok(caller.map(|caller| caller.id().to_owned()))
        })
        .unwrap();
    registry
}

async fn served(provider: impl ContextProvider) -> Served {
    let server = Server::new(&registry())
        .context(provider)
        .archive(ArchiveAccess::everyone())
        .operators(ArchiveAccess::everyone())
        .stream_log(MemoryStreamLog::new())
        .adapter("/adapter", Agents)
        .merge_authenticated(Router::new().route("/own", get(|| async { "own" })));
    Served::start(server).await
}

/// A provider that returns a principal only for callers with a name.
fn forgetful() -> impl ContextProvider {
    context_fn(|request| {
        let provided = Provided::new().with_value("auth", json!({ "region": "north" }));
        Ok(match request.header("x-name") {
            Some(name) => provided.with_principal(Principal::new(name)),
            None => provided,
        })
    })
}

fn visitors() -> impl ContextProvider {
    context_fn(|request| {
        let provided = Provided::anonymous("visitors").with_value("auth", json!({ "region": "north" }));
        Ok(match request.header("x-name") {
            Some(name) => provided.with_principal(Principal::new(name)),
            None => provided,
        })
    })
}

#[tokio::test]
async fn every_route_rejects_a_call_for_which_the_provider_returns_no_principal() {
    let server = served(forgetful()).await;
    let client = &server.client;
    let named = answer(server.request(RUN, &says("hi")).header("x-name", "ann")).await;
    assert_eq!(named.status, 200);

    let json = json!({ "data": {} });
    let websocket = client
        .get(server.url(RUN))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "everturn.v1");
    let streamed = || {
        server
            .request(RUN, &says("hi"))
            .header("accept", "text/event-stream")
    };
    let lines = client
        .post(server.url("/agents/parrot/import"))
        .header("content-type", "application/x-ndjson");
    for (route, request) in [
        ("turn", server.request(RUN, &says("hi"))),
        ("stream", streamed()),
        ("reattachment", streamed().header("x-genkit-stream-id", "abc")),
        (
            "stop",
            client.delete(server.url(RUN)).header("x-genkit-stream-id", "abc"),
        ),
        ("websocket", websocket),
        ("companion", server.request("/agents/parrot/listSessions", &json)),
        ("archive", server.request("/agents/parrot/delete", &json)),
        ("lines", lines),
        ("operators", server.request("/agents/parrot/listTenants", &json)),
        ("flow", server.request("/flows/who", &json!({}))),
        ("agents", client.get(server.url("/agents"))),
        ("document", client.get(server.url("/openapi.json"))),
        ("metrics", client.get(server.url("/metrics"))),
        ("adapter", server.request("/adapter", &json!({}))),
        ("own", client.get(server.url("/own"))),
    ] {
        let refused = answer(request).await;

        assert_eq!(refused.status, 401, "{route}: {refused:?}");
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("with_principal"), "{route}: {message}");
        assert!(message.contains("Provided::anonymous"), "{route}: {message}");
    }
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn anonymous_callers_share_the_named_tenant_and_no_other() {
    let server = served(visitors()).await;
    let read = |answer: &Answer| json!({ "data": { "snapshotId": answer.result()["snapshotId"] } });
    let path = "/agents/parrot/getSnapshot";

    let visitors = server.post(RUN, &says("hello")).await;
    let anns = answer(server.request(RUN, &says("secret")).header("x-name", "ann")).await;

    assert_eq!(server.post(path, &read(&visitors)).await.status, 200);
    server
        .post(path, &read(&anns))
        .await
        .assert_failure(404, "NOT_FOUND");
    let foreign = answer(server.request(path, &read(&visitors)).header("x-name", "ann")).await;
    foreign.assert_failure(404, "NOT_FOUND");
    // The name of the tenant, for work on its sessions.
    let staff = answer(
        server
            .request(path, &read(&visitors))
            .header("x-name", "visitors"),
    )
    .await;
    assert_eq!(staff.status, 200);
}

#[tokio::test]
async fn an_anonymous_caller_is_no_principal() {
    let server = served(visitors()).await;

    let nobody = server.post("/flows/who", &json!({})).await;
    let ann = answer(server.request("/flows/who", &json!({})).header("x-name", "ann")).await;

    assert_eq!(nobody.result(), json!(null));
    assert_eq!(ann.result(), json!("ann"));
}

#[tokio::test]
async fn a_stream_of_anonymous_callers_is_found_again_in_their_tenant_only() {
    let server = served(visitors()).await;
    let run = server
        .stream(RUN, &says_in("hello", &json!({ "sessionId": "s" })))
        .await;
    let id = run.header("x-genkit-stream-id").unwrap().to_owned();
    let again = || {
        let request = server
            .request(RUN, &says("ignored"))
            .header("accept", "text/event-stream");
        request.header("x-genkit-stream-id", &id)
    };

    assert_eq!(answer(again()).await.body, run.body);
    assert_eq!(answer(again().header("x-name", "ann")).await.status, 204);
    assert_eq!(answer(again().header("x-name", "visitors")).await.status, 200);
}

#[tokio::test]
async fn anonymous_callers_are_not_counted_as_one_principal() {
    let server = Server::new(&registry())
        .context(visitors())
        .limits(Limits::default().calls_per_principal(0));
    let server = Served::start(server).await;

    assert_eq!(server.post(RUN, &says("hi")).await.status, 200);
    let ann = answer(server.request(RUN, &says("hi")).header("x-name", "ann")).await;
    ann.assert_failure(429, "RESOURCE_EXHAUSTED");
}

#[tokio::test]
async fn a_server_that_others_reach_needs_a_provider_or_permission() {
    let server = || Server::new(&registry());
    let public = ("0.0.0.0", 0);

    let refused = server().bind(public).await.unwrap_err();
    let also_refused = server().allowed_hosts(["kitchen.example"]).bind(("::", 0)).await;

    assert_eq!(refused.status(), Status::FailedPrecondition);
    for remedy in ["`Server::context`", "`Server::allow_everyone`", "0.0.0.0"] {
        assert!(refused.message().contains(remedy), "{refused}");
    }
    // A machine without IPv6 has another reason.
    assert!(also_refused.is_err());
    assert!(server().bind(("127.0.0.1", 0)).await.is_ok());
    assert!(server().bind(("localhost", 0)).await.is_ok());
    assert!(server().allow_everyone().bind(public).await.is_ok());
    assert!(server().context(forgetful()).bind(public).await.is_ok());
}
