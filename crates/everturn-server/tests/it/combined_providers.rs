//! Several providers: alternatives, sequences, and staff who act for a customer.

use std::sync::Arc;

use axum::http::{HeaderMap, Method};
use everturn_agent::store::MemoryStore;
use everturn_core::{Error, Registry, Result, Status};
use everturn_server::{
    ApiKeys, BearerTokens, CallRequest, ContextProvider, Principal, Provided, Server, context_fn,
};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::support::agents::{parrot, says};
use crate::support::{Served, answer};

fn tokens() -> BearerTokens {
    BearerTokens::new([("ann", "ann-token"), ("carl", "carl-token")]).with_role("carl", "staff")
}

fn keys() -> ApiKeys {
    ApiKeys::new([("importer", "a-key")])
}

fn visitors() -> impl ContextProvider {
    context_fn(|_| Ok(Provided::anonymous("visitors")))
}

/// Asks a provider about a request with these headers.
async fn ask(provider: &impl ContextProvider, pairs: &[(&'static str, &str)]) -> Result<Provided> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    let request = CallRequest::new(&Method::POST, "/", &headers);
    provider.provide(&request).await.map_err(Error::from)
}

fn is(name: &str) -> Provided {
    let principal = Principal::new(name);
    Provided::new()
        .with_values(principal.context().values().clone())
        .with_principal(principal)
}

const ANN: (&str, &str) = ("authorization", "Bearer ann-token");
const CARL: (&str, &str) = ("authorization", "Bearer carl-token");
const WRONG: (&str, &str) = ("authorization", "Bearer wrong");

#[tokio::test]
async fn the_first_alternative_that_identifies_the_caller_is_the_answer() {
    let either = tokens().or(keys());

    assert_eq!(ask(&either, &[ANN]).await.unwrap(), is("ann"));
    assert_eq!(
        ask(&either, &[("x-api-key", "a-key")]).await.unwrap(),
        is("importer")
    );
    assert_eq!(
        ask(&either, &[ANN, ("x-api-key", "a-key")]).await.unwrap(),
        is("ann")
    );
    assert_eq!(
        ask(&either, &[WRONG, ("x-api-key", "a-key")]).await.unwrap(),
        is("importer")
    );
    let neither = ask(&either, &[]).await.unwrap_err();
    assert_eq!(neither.status(), Status::Unauthenticated);
    let message = neither.public_message().unwrap();
    assert!(
        message.contains("Bearer <token>") && message.contains("x-api-key"),
        "{message}"
    );
}

#[tokio::test]
async fn an_alternative_is_not_asked_after_a_refusal() {
    let either = keys().or(tokens());

    let refused = ask(&either, &[("x-api-key", "wrong"), ANN]).await.unwrap_err();

    assert_eq!(refused.status(), Status::PermissionDenied);
}

#[tokio::test]
async fn a_wrong_token_does_not_make_a_caller_anonymous() {
    let either = tokens().or(visitors());

    assert_eq!(ask(&either, &[]).await.unwrap(), Provided::anonymous("visitors"));
    assert_eq!(ask(&either, &[ANN]).await.unwrap(), is("ann"));
    let refused = ask(&either, &[WRONG]).await.unwrap_err();
    assert_eq!(refused.status(), Status::Unauthenticated);
}

#[tokio::test]
async fn a_sequence_needs_all_and_keeps_a_principal() {
    let region = || context_fn(|_| Ok(Provided::new().with_value("region", "north")));
    let both = tokens().and(region()).and(visitors());

    assert_eq!(
        ask(&both, &[ANN])
            .await
            .unwrap()
            .with_principal(Principal::new("ann")),
        ask(&both, &[ANN]).await.unwrap()
    );
    let refused = ask(&both, &[]).await.unwrap_err();
    assert_eq!(refused.status(), Status::Unauthenticated);
}

#[tokio::test]
async fn callers_with_the_role_act_in_the_tenant_that_they_name() {
    let callers = tokens().or(keys()).acting_for("staff", "x-customer");
    let scope = |provided: Provided| {
        let text = format!("{provided:?}");
        text.contains("Principal(\"carl\" in \"ann\")")
    };

    assert!(scope(
        ask(&callers, &[CARL, ("x-customer", "ann")]).await.unwrap()
    ));
    assert!(!scope(ask(&callers, &[CARL]).await.unwrap()));
    for (headers, status) in [
        (vec![ANN, ("x-customer", "carl")], Status::PermissionDenied),
        (vec![ANN, ("x-customer", "ann")], Status::PermissionDenied),
        (vec![("x-customer", "ann")], Status::Unauthenticated),
        (vec![CARL, ("x-customer", "")], Status::InvalidArgument),
        (
            vec![CARL, ("x-customer", "ann"), ("x-customer", "ben")],
            Status::InvalidArgument,
        ),
    ] {
        let refused = ask(&callers, &headers).await.unwrap_err();
        assert_eq!(refused.status(), status, "{headers:?}");
        assert!(refused.public_message().is_some(), "{headers:?}");
    }
}

#[tokio::test]
async fn the_sessions_of_a_tenant_that_does_not_exist_are_not_found() {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    let server = Server::new(&registry).context(tokens().acting_for("staff", "x-customer"));
    let server = Served::start(server).await;
    let send = async |path: &str, body: &Value, headers: &[(&str, &str)]| {
        let request = server.request(path, body);
        let add = |request: RequestBuilder, (name, value): &(&str, &str)| request.header(*name, *value);
        answer(headers.iter().fold(request, add)).await
    };
    let list = "/agents/parrot/listSessions";
    let everything = json!({ "data": {} });

    // Without a header, a caller without sessions has none.
    let of_ann = send(list, &everything, &[ANN]).await;
    let mistyped = send(list, &everything, &[CARL, ("x-customer", "anne")]).await;
    // Staff may begin the first session of a customer.
    let begun = send("/agents/parrot", &says("hello"), &[CARL, ("x-customer", "ann")]).await;
    let named = send(list, &everything, &[CARL, ("x-customer", "ann")]).await;

    assert_eq!(of_ann.result()["sessions"], json!([]));
    mistyped.assert_failure(404, "NOT_FOUND");
    assert!(mistyped.json()["message"].as_str().unwrap().contains("'anne'"));
    assert_eq!(begun.status, 200);
    assert_eq!(named.result()["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_role_in_the_value_auth_counts() {
    let callers = context_fn(|_| {
        let auth = json!({ "roles": ["staff"] });
        Ok(Provided::new()
            .with_value("auth", auth)
            .with_principal(Principal::new("carl")))
    });

    let acting = ask(
        &callers.acting_for("staff", "x-customer"),
        &[("x-customer", "ann")],
    )
    .await;

    assert!(format!("{:?}", acting.unwrap()).contains("in \"ann\""));
}

#[tokio::test]
async fn an_anonymous_caller_cannot_act_for_others() {
    let callers = visitors().acting_for("staff", "x-customer");

    let refused = ask(&callers, &[("x-customer", "ann")]).await.unwrap_err();

    assert_eq!(refused.status(), Status::PermissionDenied);
}

#[tokio::test]
async fn two_providers_that_are_not_combined_are_an_error() {
    let server = Server::new(&Registry::new()).context(tokens()).context(keys());

    let refused = server.bind(("127.0.0.1", 0)).await.unwrap_err();

    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(refused.message().contains("`first.or(second)`"), "{refused}");
    assert!(refused.message().contains("`first.and(second)`"), "{refused}");
}
