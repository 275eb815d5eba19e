//! Values that a context provider gives to a call, and application routes behind the same authentication.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use everturn_agent::Agent;
use everturn_agent::store::MemoryStore;
use everturn_core::{Dep, Error, Principal, Registry};
use everturn_server::{BearerTokens, FromCall, Limits, Provided, Server, context_fn};
use serde_json::{Value, json};

use crate::support::agents::{parrot, says};
use crate::support::{Answer, Served, answer};

struct Cart(Vec<String>);

struct Shop(&'static str);

fn tokens() -> BearerTokens {
    BearerTokens::new([("alice", "alice-token"), ("bob", "bob-token")]).with_role("bob", "staff")
}

async fn get_as(server: &Served, token: &str, path: &str) -> Answer {
    answer(server.client.get(server.url(path)).bearer_auth(token)).await
}

#[tokio::test]
async fn a_provider_gives_each_call_a_value_that_flows_take() {
    let registry = Registry::new();
    registry.provided_by_each_call::<Cart>();
    registry
        .define_flow(
            "cart",
            |(): (), cart: Dep<Cart>, caller: Option<Principal>| async move {
                Ok(json!([cart.0, caller.is_some()]))
            },
        )
        .unwrap();
    let carts = context_fn(|request| {
        let item = request.header("x-item");
        let item = item.ok_or_else(|| Error::unauthenticated("no item").with_public())?;
        Ok(Provided::anonymous("shoppers").with(Cart(vec![item.to_owned()])))
    });
    let server = Served::start(Server::new(&registry).context(carts)).await;

    let call = |item: &'static str| {
        server
            .request("/flows/cart", &json!({ "data": null }))
            .header("x-item", item)
    };

    assert_eq!(answer(call("leeks")).await.result(), json!([["leeks"], false]));
    assert_eq!(answer(call("butter")).await.result(), json!([["butter"], false]));
}

#[tokio::test]
async fn merged_routes_know_their_caller_and_refuse_strangers() {
    let registry = Registry::new();
    registry.provide(Shop("corner"));
    let whoami = |FromCall(caller): FromCall<Principal>, FromCall(shop): FromCall<Dep<Shop>>| async move {
        let roles: Vec<&str> = caller.roles().collect();
        format!("{} {} {}", shop.0, caller.id(), roles.join(","))
    };
    let own = Router::new().route("/whoami", get(whoami));
    let open = Router::new().route("/open", get(|| async { "open" }));
    let server = Server::new(&registry)
        .context(tokens())
        .merge(open)
        .merge_authenticated(own);
    let server = Served::start(server).await;

    let stranger = server.get("/whoami").await;
    let forged = get_as(&server, "carol-token", "/whoami").await;

    stranger.assert_failure(401, "UNAUTHENTICATED");
    assert_eq!(stranger.header("www-authenticate"), Some("Bearer"));
    assert!(stranger.header("x-request-id").is_some());
    forged.assert_failure(401, "UNAUTHENTICATED");
    assert_eq!(
        get_as(&server, "alice-token", "/whoami").await.body,
        "corner alice "
    );
    assert_eq!(
        get_as(&server, "bob-token", "/whoami").await.body,
        "corner bob staff"
    );
    assert_eq!(server.get("/open").await.body, "open");
}

#[tokio::test]
async fn a_merged_route_calls_agents_on_behalf_of_its_caller() {
    let registry = Registry::new();
    let parrot: Agent = parrot(&registry, Some(Arc::new(MemoryStore::new())));
    let said = move || async move {
        let reply = parrot.run_text("hello").await.unwrap();
        reply.snapshot_id().unwrap().to_string()
    };
    let server = Server::new(&registry)
        .context(tokens())
        .merge_authenticated(Router::new().route("/said", post(said)));
    let server = Served::start(server).await;

    let id = answer(server.client.post(server.url("/said")).bearer_auth("alice-token"))
        .await
        .body;
    let read = json!({ "data": { "snapshotId": id } });
    let path = "/agents/parrot/getSnapshot";
    let alice = answer(server.request(path, &read).bearer_auth("alice-token")).await;
    let bob = answer(server.request(path, &read).bearer_auth("bob-token")).await;

    assert_eq!(alice.result()["snapshotId"], Value::from(id));
    assert_eq!(bob.status, 404, "{bob:?}");
}

#[tokio::test]
async fn calls_of_merged_routes_count_as_their_callers() {
    let registry = Registry::new();
    let own = Router::new().route("/own", get(|| async { "own" }));
    let server = Server::new(&registry)
        .context(tokens())
        .limits(Limits::default().calls_per_principal(0))
        .merge_authenticated(own);
    let server = Served::start(server).await;

    let refused = get_as(&server, "alice-token", "/own").await;

    refused.assert_failure(429, "RESOURCE_EXHAUSTED");
}

#[tokio::test]
async fn a_route_that_is_not_authenticated_has_no_caller_to_take() {
    let route = get(|FromCall(caller): FromCall<Principal>| async move { caller.id().to_owned() });
    let server = Server::new(&Registry::new()).merge(Router::new().route("/whoami", route));
    let server = Served::start(server).await;

    assert_eq!(server.get("/whoami").await.status, 500);
}

#[tokio::test]
async fn the_context_of_a_principal_sees_what_the_principals_calls_wrote() {
    let registry = Registry::new();
    let parrot: Agent = parrot(&registry, Some(Arc::new(MemoryStore::new())));
    let server = Served::start(Server::new(&registry).context(tokens())).await;
    let call = server
        .request("/agents/parrot", &says("hello"))
        .bearer_auth("alice-token");
    let id = answer(call).await.result()["snapshotId"]
        .as_str()
        .unwrap()
        .to_owned();

    let alice = Principal::new("alice").context();
    let staff = Principal::new("bob").in_tenant("alice").context();
    let bob = Principal::new("bob").context();

    assert!(alice.scope(parrot.get_snapshot(id.as_str())).await.is_ok());
    assert!(staff.scope(parrot.get_snapshot(id.as_str())).await.is_ok());
    assert!(bob.scope(parrot.get_snapshot(id.as_str())).await.is_err());
}
