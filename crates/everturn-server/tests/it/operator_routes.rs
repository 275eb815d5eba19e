//! The routes for operators: health, metrics, and a document that is true.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_core::{Registry, Schema};
use everturn_server::{ApiKeys, ArchiveAccess, BearerTokens, ContextProvider, Server};
use serde_json::{Value, json};

use crate::support::agents::{parrot, says};
use crate::support::{Answer, Served, answer};

fn registry() -> Registry {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    registry
        .define_flow("menu", |theme: String| async move { Ok(format!("{theme} soup")) })
        .unwrap();
    registry
}

async fn document() -> Value {
    Served::of(&registry()).await.get("/openapi.json").await.json()
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                found.push(reference.clone());
            }
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_route_is_described() {
    let document = document().await;

    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    for path in [
        "/agents",
        "/agents/parrot",
        "/agents/parrot/getSnapshot",
        "/agents/parrot/abort",
        "/flows/menu",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/metrics",
    ] {
        assert!(
            paths.iter().any(|known| *known == path),
            "{path} is not in {paths:?}"
        );
    }
    let body = document.pointer("/paths/~1flows~1menu/post/requestBody/content/application~1json/schema");
    assert_eq!(body.unwrap()["required"], json!(["data"]));
}

#[tokio::test]
async fn every_reference_in_the_document_leads_somewhere() {
    let document = document().await;

    let mut found = Vec::new();
    references(&document, &mut found);

    assert!(!found.is_empty());
    for reference in found {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
    }
}

/// A schema of the document, on its own.
fn schema_at(document: &Value, pointer: &str) -> Schema {
    let mut schema = document
        .pointer(pointer)
        .unwrap_or_else(|| panic!("{pointer}"))
        .clone();
    schema["components"] = document["components"].clone();
    Schema::from_json(schema).unwrap()
}

#[tokio::test]
async fn requests_and_answers_match_their_description() {
    let server = Served::of(&registry()).await;
    let document = server.get("/openapi.json").await.json();
    let operation = "/paths/~1agents~1parrot/post";

    let request = says("hi");
    let answered = server.post("/agents/parrot", &request).await;
    let refused = server.post("/agents/parrot", &json!({ "data": 1 })).await;

    let schema = |place: &str| {
        schema_at(
            &document,
            &format!("{operation}/{place}/content/application~1json/schema"),
        )
    };
    schema("requestBody").validate(&request).unwrap();
    schema("responses/200").validate(&answered.json()).unwrap();
    schema("responses/400").validate(&refused.json()).unwrap();
    assert!(schema("requestBody").validate(&json!({ "data": 1 })).is_err());
}

/// A server with a customer and an operator.
fn guarded() -> Server {
    let tokens = BearerTokens::new([("alice", "token"), ("olga", "operator-token")]);
    Server::new(&registry())
        .context(tokens.with_role("olga", "operator"))
        .operators(ArchiveAccess::role("operator"))
}

async fn get_as(server: &Served, token: &str, path: &str) -> Answer {
    answer(server.client.get(server.url(path)).bearer_auth(token)).await
}

#[tokio::test]
async fn the_ways_to_authenticate_are_described() {
    let server = Served::start(guarded()).await;

    let document = get_as(&server, "token", "/openapi.json").await.json();

    let run = &document["paths"]["/agents/parrot"]["post"];
    assert_eq!(run["security"], json!([{ "bearer": [] }]));
    assert_eq!(
        document["components"]["securitySchemes"]["bearer"]["scheme"],
        "bearer"
    );
    assert!(run["responses"]["401"].is_object());
    assert_eq!(document["paths"]["/healthz"]["get"]["security"], json!([]));
}

#[tokio::test]
async fn alternatives_and_sequences_of_providers_are_described() {
    let keys = || ApiKeys::new([("bob", "a-key")]);
    let tokens = || BearerTokens::new([("alice", "token")]);
    for (server, expected) in [
        (
            Server::new(&registry()).context(tokens().or(keys())),
            json!([{ "bearer": [] }, { "apiKey": [] }]),
        ),
        (
            Server::new(&registry()).context(tokens().and(keys())),
            json!([{ "bearer": [], "apiKey": [] }]),
        ),
    ] {
        let server = Served::start(server).await;
        let request = server.client.get(server.url("/openapi.json"));
        let document = answer(request.bearer_auth("token").header("x-api-key", "a-key"))
            .await
            .json();

        assert_eq!(document["paths"]["/agents/parrot"]["post"]["security"], expected);
        assert_eq!(
            document["components"]["securitySchemes"]["apiKey"]["in"],
            "header"
        );
    }
}

#[tokio::test]
async fn metrics_are_for_operators_where_there_is_a_provider() {
    let server = Served::start(guarded()).await;
    let without_operators = Server::new(&registry()).context(BearerTokens::new([("alice", "token")]));
    let without_operators = Served::start(without_operators).await;

    server
        .get("/metrics")
        .await
        .assert_failure(401, "UNAUTHENTICATED");
    for server in [&server, &without_operators] {
        let refused = get_as(server, "token", "/metrics").await;
        refused.assert_failure(403, "PERMISSION_DENIED");
        assert!(!refused.body.contains("everturn_"), "{refused:?}");
    }
    let metrics = get_as(&server, "operator-token", "/metrics").await;
    assert!(metrics.body.contains("everturn_calls_in_flight"), "{metrics:?}");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn the_document_shows_the_routes_of_operators_to_operators() {
    let server = Served::start(guarded()).await;

    server
        .get("/openapi.json")
        .await
        .assert_failure(401, "UNAUTHENTICATED");
    let customers = get_as(&server, "token", "/openapi.json").await;
    let operators = get_as(&server, "operator-token", "/openapi.json").await.json();
    let again = get_as(&server, "token", "/openapi.json").await;

    assert_eq!(customers.status, 200);
    assert_eq!(customers.body, again.body);
    for path in [
        "/metrics",
        "/agents/parrot/listTenants",
        "/agents/parrot/deleteTenant",
        "/agents/parrot/retain",
    ] {
        assert!(operators["paths"][path].is_object(), "{path}");
        assert!(!customers.body.contains(path), "{path}");
    }
    let metrics = &operators["paths"]["/metrics"]["get"];
    assert_eq!(metrics["security"], json!([{ "bearer": [] }]));
    assert!(metrics["responses"]["401"].is_object() && metrics["responses"]["403"].is_object());
}

#[tokio::test]
async fn the_root_without_a_page_names_the_way_to_the_studio() {
    let server = Served::of(&registry()).await;

    let root = server.get("/").await;

    assert_eq!(root.status, 404);
    assert!(root.body.contains("EVERTURN_ENV=dev"), "{root:?}");
    assert!(root.json()["status"].is_null(), "{root:?}");
}

#[tokio::test]
async fn calls_and_chunks_are_counted_by_route() {
    let server = Served::of(&registry()).await;

    server.stream("/agents/parrot", &says("leek soup")).await;
    server.post("/flows/menu", &json!({ "data": 1 })).await;
    server.get("/no/such/path").await;
    let metrics = server.get("/metrics").await;

    for line in [
        r#"everturn_http_requests_total{route="/agents/parrot",kind="agent",status="200"} 1"#,
        r#"everturn_http_requests_total{route="/flows/menu",kind="flow",status="400"} 1"#,
        r#"everturn_stream_chunks_total{route="/agents/parrot",kind="agent"} 3"#,
        r#"everturn_streams_open{route="/agents/parrot",kind="agent"} 0"#,
        r#"everturn_calls_in_flight{route="/agents/parrot",kind="agent"} 0"#,
        r#"everturn_call_duration_seconds_count{route="/agents/parrot",kind="agent"} 1"#,
    ] {
        assert!(
            metrics.body.lines().any(|known| known == line),
            "{line}\n{}",
            metrics.body
        );
    }
    assert!(
        !metrics.body.contains("no/such/path"),
        "paths that clients make up must not fill memory"
    );
    assert!(
        metrics
            .header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
}

#[tokio::test]
async fn a_server_is_alive_and_ready() {
    let server = Served::of(&registry()).await;

    assert_eq!(server.get("/healthz").await.json(), json!({ "status": "ok" }));
    assert_eq!(server.get("/readyz").await.json(), json!({ "status": "ready" }));
}

#[tokio::test]
async fn metrics_of_other_parts_are_shown_before_the_end() {
    let server = Server::new(&registry())
        .metrics_of(|| "# TYPE kitchen_pots gauge\nkitchen_pots 3".to_owned())
        .metrics_of(|| "# TYPE kitchen_pans gauge\nkitchen_pans 2\n# EOF\n".to_owned());

    let text = Served::start(server).await.get("/metrics").await.body;

    assert!(text.contains("everturn_calls_in_flight"), "{text}");
    assert!(
        text.ends_with("kitchen_pots 3\n# TYPE kitchen_pans gauge\nkitchen_pans 2\n# EOF\n"),
        "{text}"
    );
    assert_eq!(text.matches("# EOF").count(), 1);
}

#[tokio::test]
async fn the_agents_are_listed_with_the_actions_that_they_have() {
    let server = Served::of(&registry()).await;

    let list = server.get("/agents").await.json();

    let agents = list["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 1);
    assert_eq!(agents[0]["name"], "parrot");
    assert_eq!(agents[0]["path"], "/agents/parrot");
    assert_eq!(agents[0]["metadata"]["agent"]["stateManagement"], "server");
    assert_eq!(agents[0]["metadata"]["everturn"]["concurrency"], "reject");
    let actions = agents[0]["actions"].as_array().unwrap();
    assert!(actions.contains(&json!("tree")), "{actions:?}");
    assert!(
        !actions.contains(&json!("delete")),
        "nobody may delete: {actions:?}"
    );
}

#[tokio::test]
async fn the_list_of_agents_is_for_callers_that_are_let_in() {
    let tokens = BearerTokens::new([("alice", "alice-token")]);
    let server = Served::start(Server::new(&registry()).context(tokens)).await;

    let stranger = server.get("/agents").await;
    let known = server
        .client
        .get(server.url("/agents"))
        .bearer_auth("alice-token");

    stranger.assert_failure(401, "UNAUTHENTICATED");
    assert_eq!(answer(known).await.status, 200);
}
