//! Other protocols at a path of a server: the same callers, the same limits.

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use everturn_core::{Context, Registry, Status};
use everturn_server::{BearerTokens, Door, Limits, Principal, Route, Server};
use serde_json::json;

use crate::support::{Served, answer};

/// Says who calls, and how much was sent.
struct WhoIsThere;

#[async_trait]
impl Door for WhoIsThere {
    async fn answer(&self, request: Request<Bytes>, context: Context) -> Response<Body> {
        let caller = context.extension::<Principal>();
        let name = caller.as_deref().map_or("nobody", Principal::id);
        Response::new(format!("{} {name} {}", request.method(), request.body().len()).into())
    }
}

async fn served() -> Served {
    let tokens = BearerTokens::new([("alice", "alice-token")]);
    let limits = Limits::default().body_bytes(100);
    let server = Server::new(&Registry::new()).context(tokens).limits(limits);
    Served::start(server.door("/who", WhoIsThere)).await
}

#[tokio::test]
async fn a_door_is_told_who_calls() {
    let server = served().await;

    let known = answer(server.request("/who", &json!("hi")).bearer_auth("alice-token")).await;
    let unknown = server.post("/who", &json!("hi")).await;

    assert_eq!(known.body, "POST alice 4");
    unknown.assert_failure(401, "UNAUTHENTICATED");
}

#[tokio::test]
async fn a_body_that_is_too_large_does_not_reach_a_door() {
    let server = served().await;
    let large = json!("x".repeat(200));

    let refused = answer(server.request("/who", &large).bearer_auth("alice-token")).await;

    refused.assert_failure(413, "INVALID_ARGUMENT");
}

#[test]
fn a_door_and_a_route_at_one_path_are_refused() {
    let registry = Registry::new();
    registry
        .define_flow("menu", |input: String| async move { Ok(input) })
        .unwrap();
    let server = Server::new(&registry).routes([Route::post("/who", "/flow/menu")]);

    let refused = server.door("/who", WhoIsThere).router().unwrap_err();

    assert_eq!(refused.status(), Status::AlreadyExists);
}

#[tokio::test]
async fn a_door_may_be_at_many_paths() {
    let server = Server::new(&Registry::new()).door("/who/{*rest}", WhoIsThere);
    let server = Served::start(server).await;

    let below = server.post("/who/is/there", &json!("hi")).await;
    let above = server.post("/who", &json!("hi")).await;

    assert_eq!(below.body, "POST nobody 4");
    above.assert_failure(404, "NOT_FOUND");
}
