//! Routes are data: mounted elsewhere, in part, or into an application's router.

use axum::Router;
use everturn_core::{Registry, Status};
use everturn_server::{CorsLayer, Route, RouteKind, Server};
use serde_json::json;

use crate::support::{Served, answer};

fn registry() -> Registry {
    let registry = Registry::new();
    for name in ["menu", "bill"] {
        registry
            .define_flow(name, |input: String| async move { Ok(input) })
            .unwrap();
    }
    registry
}

#[tokio::test]
async fn a_router_is_nested_into_an_application() {
    let registry = registry();
    let router = Server::new(&registry).without_operations().router().unwrap();
    let app = Router::new()
        .nest("/api", router)
        .route("/", axum::routing::get(|| async { "home" }));
    let server = Served::start(Server::new(&Registry::new()).merge(app)).await;

    let call = server.post("/api/flows/menu", &json!({ "data": "leek" })).await;
    let home = server.get("/").await;

    assert_eq!(call.result(), "leek");
    assert_eq!(home.body, "home");
}

#[tokio::test]
async fn a_subset_is_mounted_at_other_paths() {
    let registry = registry();
    let route = Route::post("/today", "/flow/menu");
    assert_eq!(route.kind, RouteKind::Flow);
    let server = Served::start(Server::new(&registry).routes([route])).await;

    let moved = server.post("/today", &json!({ "data": "leek" })).await;
    let left_out = server.post("/flows/bill", &json!({ "data": "leek" })).await;

    assert_eq!(moved.result(), "leek");
    left_out.assert_no_such_path();
}

#[tokio::test]
async fn routes_that_cannot_be_mounted_are_refused_when_the_router_is_made() {
    let registry = registry();
    let refused = |routes: Vec<Route>| {
        Server::new(&registry)
            .routes(routes)
            .router()
            .unwrap_err()
            .status()
    };

    let twice = vec![Route::post("/a", "/flow/menu"), Route::post("/a", "/flow/bill")];
    assert_eq!(refused(twice), Status::AlreadyExists);
    assert_eq!(refused(vec![Route::post("/a", "/flow/none")]), Status::NotFound);
    for path in ["a", "/{a}", "/a b", "/ä", "/a?b"] {
        assert_eq!(
            refused(vec![Route::post(path, "/flow/menu")]),
            Status::InvalidArgument,
            "{path}"
        );
    }
}

#[tokio::test]
async fn an_action_whose_name_needs_encoding_is_reached() {
    let registry = Registry::new();
    registry
        .define_flow("küche/{x}", |(): ()| async move { Ok(true) })
        .unwrap();
    let server = Served::of(&registry).await;

    let answer = server.post("/flows/k%C3%BCche/%7Bx%7D", &json!({})).await;

    assert_eq!(answer.result(), true);
}

#[tokio::test]
async fn pages_of_other_origins_may_call_if_the_server_allows_it() {
    let registry = registry();
    let open = Served::start(Server::new(&registry).cors(CorsLayer::permissive())).await;
    let closed = Served::of(&registry).await;
    let preflight = |server: &Served| {
        let url = server.url("/flows/menu");
        let request = server.client.request(reqwest::Method::OPTIONS, url);
        answer(
            request
                .header("origin", "https://example.com")
                .header("access-control-request-method", "POST"),
        )
    };

    let allowed = preflight(&open).await;
    let refused = preflight(&closed).await;

    assert_eq!(allowed.status, 200);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("*"));
    assert_eq!(refused.header("access-control-allow-origin"), None);
}
