//! Other protocols at a path of a server: the same callers, the same limits.

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use everturn_core::{Context, Registry, Status};
use everturn_server::{
    ArchiveAccess, Audience, BearerTokens, Limits, Principal, ProtocolAdapter, Route, Server,
};
use serde_json::json;

use crate::support::{Served, answer};

/// Says who calls, and how much was sent.
struct WhoIsThere;

#[async_trait]
impl ProtocolAdapter for WhoIsThere {
    async fn handle(&self, request: Request<Bytes>, context: Context) -> Response<Body> {
        let caller = context.extension::<Principal>();
        let name = caller.as_deref().map_or("nobody", Principal::id);
        Response::new(format!("{} {name} {}", request.method(), request.body().len()).into())
    }
}

async fn served() -> Served {
    let tokens = BearerTokens::new([("alice", "alice-token")]);
    let limits = Limits::default().body_bytes(100);
    let server = Server::new(&Registry::new()).context(tokens).limits(limits);
    Served::start(server.adapter("/who", WhoIsThere)).await
}

#[tokio::test]
async fn an_adapter_receives_the_caller() {
    let server = served().await;

    let known = answer(server.request("/who", &json!("hi")).bearer_auth("alice-token")).await;
    let unknown = server.post("/who", &json!("hi")).await;

    assert_eq!(known.body, "POST alice 4");
    unknown.assert_failure(401, "UNAUTHENTICATED");
}

#[tokio::test]
async fn a_body_that_is_too_large_does_not_reach_an_adapter() {
    let server = served().await;
    let large = json!("x".repeat(200));

    let refused = answer(server.request("/who", &large).bearer_auth("alice-token")).await;

    refused.assert_failure(413, "INVALID_ARGUMENT");
}

#[tokio::test]
async fn a_body_must_be_sent_as_json() {
    let server = Served::start(Server::new(&Registry::new()).adapter("/who", WhoIsThere)).await;
    let post = || server.client.post(server.url("/who"));
    let json = |kind: &str| post().header("content-type", kind).body("{}");

    for kind in ["application/json", "application/json; charset=utf-8"] {
        assert_eq!(answer(json(kind)).await.status, 200, "{kind}");
    }
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
    ] {
        answer(json(kind)).await.assert_failure(415, "INVALID_ARGUMENT");
    }
    answer(post().body("{}"))
        .await
        .assert_failure(415, "INVALID_ARGUMENT");
    answer(post().header("content-type", "text/plain"))
        .await
        .assert_failure(415, "INVALID_ARGUMENT");
    // Requests without a body and without a type have nothing to declare.
    for request in [
        post(),
        server.client.get(server.url("/who")),
        server.client.delete(server.url("/who")),
    ] {
        assert_eq!(answer(request).await.status, 200);
    }
}

/// An adapter for one audience.
struct For(Audience);

#[async_trait]
impl ProtocolAdapter for For {
    async fn handle(&self, _request: Request<Bytes>, _context: Context) -> Response<Body> {
        Response::new(Body::empty())
    }

    fn audience(&self) -> Audience {
        self.0
    }
}

#[tokio::test]
async fn an_adapter_is_for_everyone_for_callers_or_for_operators() {
    let adapters = |server: Server| {
        let server = server.adapter("/everyone", For(Audience::Everyone));
        let server = server.adapter("/callers", For(Audience::Callers));
        server.adapter("/operators", For(Audience::Operators))
    };
    let tokens = BearerTokens::new([("ann", "ann-token"), ("olga", "olga-token")]);
    let guarded = Server::new(&Registry::new())
        .context(tokens.with_role("olga", "operator"))
        .operators(ArchiveAccess::role("operator"));
    let guarded = Served::start(adapters(guarded)).await;
    let open = Served::start(adapters(Server::new(&Registry::new()))).await;
    let statuses = async |server: &Served, token: Option<&str>| {
        let mut statuses = Vec::new();
        for path in ["/everyone", "/callers", "/operators"] {
            let request = server.client.get(server.url(path));
            let request = match token {
                Some(token) => request.bearer_auth(token),
                None => request,
            };
            statuses.push(answer(request).await.status);
        }
        statuses
    };

    assert_eq!(statuses(&guarded, None).await, [200, 401, 401]);
    assert_eq!(statuses(&guarded, Some("wrong")).await, [200, 401, 401]);
    assert_eq!(statuses(&guarded, Some("ann-token")).await, [200, 200, 403]);
    assert_eq!(statuses(&guarded, Some("olga-token")).await, [200, 200, 200]);
    assert_eq!(statuses(&open, None).await, [200, 200, 200]);
}

#[test]
fn an_adapter_and_a_route_at_one_path_are_refused() {
    let registry = Registry::new();
    registry
        .define_flow("menu", |input: String| async move { Ok(input) })
        .unwrap();
    let server = Server::new(&registry).routes([Route::post("/who", "/flow/menu")]);

    let refused = server.adapter("/who", WhoIsThere).router().unwrap_err();

    assert_eq!(refused.status(), Status::AlreadyExists);
}

#[tokio::test]
async fn an_adapter_may_be_at_many_paths() {
    let server = Server::new(&Registry::new()).adapter("/who/{*rest}", WhoIsThere);
    let server = Served::start(server).await;

    let below = server.post("/who/is/there", &json!("hi")).await;
    let above = server.post("/who", &json!("hi")).await;

    assert_eq!(below.body, "POST nobody 4");
    above.assert_no_such_path();
}
