//! Callers known by signed tokens: good ones are let in, all others learn nothing.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::get;
use everturn_core::{Action, ActionType, Context, Emitter, Registry};
use everturn_server::{Jwks, JwtTokens, Server};
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::support::{Answer, Served, answer};

const ISSUER: &str = "https://login.example.com";

/// A key made from a number, as the issuer has it.
fn key(seed: u8) -> EncodingKey {
    let mut der = vec![
        0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
    ];
    der.extend([seed; 32]);
    EncodingKey::from_ed_der(&der)
}

/// The issuer's key set, with one key.
fn key_set(seed: u8) -> String {
    let mut jwk = Jwk::from_encoding_key(&key(seed), Algorithm::EdDSA).unwrap();
    jwk.common.key_id = Some("k1".into());
    serde_json::to_string(&JwkSet { keys: vec![jwk] }).unwrap()
}

fn in_an_hour() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600
}

fn claims() -> Value {
    json!({ "sub": "alice", "iss": ISSUER, "aud": "kitchen", "exp": in_an_hour(), "role": "chef" })
}

fn with(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[name] = value.into();
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

fn signed(claims: &Value, key: &EncodingKey, algorithm: Algorithm) -> String {
    let mut header = Header::new(algorithm);
    header.kid = Some("k1".into());
    encode(&header, claims, key).unwrap()
}

async fn served(keys: Jwks) -> Served {
    let registry = Registry::new();
    let show = |(): (), context: Context, _: Emitter<()>| async move { Ok(context.auth().cloned()) };
    registry
        .register(Arc::new(Action::streaming(ActionType::FLOW, "show", show)))
        .unwrap();
    Served::start(Server::new(&registry).context(JwtTokens::new(keys, "kitchen").issuer(ISSUER))).await
}

async fn show(server: &Served, token: &str) -> Answer {
    answer(server.request("/flows/show", &json!({})).bearer_auth(token)).await
}

#[tokio::test]
async fn a_good_token_is_let_in_and_its_claims_are_known() {
    let server = served(Jwks::from_json(&key_set(1)).unwrap()).await;

    let shown = show(&server, &signed(&claims(), &key(1), Algorithm::EdDSA))
        .await
        .result();

    assert_eq!(shown["sub"], "alice");
    assert_eq!(shown["role"], "chef");
}

#[tokio::test]
async fn a_token_that_is_not_good_is_refused_without_a_reason() {
    let server = served(Jwks::from_json(&key_set(1)).unwrap()).await;
    let sign = |claims: &Value| signed(claims, &key(1), Algorithm::EdDSA);
    let good = sign(&claims());
    let (signed_part, _) = good.rsplit_once('.').unwrap();
    // {"alg":"none"}
    let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", good.split('.').nth(1).unwrap());

    for (token, why) in [
        (sign(&with("exp", 1)), "expired"),
        (sign(&without("exp")), "never expires"),
        (sign(&with("nbf", in_an_hour())), "not valid yet"),
        (sign(&with("aud", "garage")), "meant for another"),
        (sign(&without("aud")), "meant for nobody"),
        (
            sign(&with("iss", "https://evil.example.com")),
            "of another issuer",
        ),
        (sign(&without("iss")), "of no issuer"),
        (sign(&without("sub")), "about nobody"),
        (sign(&with("sub", "")), "about nobody in particular"),
        (
            signed(&claims(), &key(2), Algorithm::EdDSA),
            "signed with another key",
        ),
        (
            signed(
                &claims(),
                &EncodingKey::from_secret(key_set(1).as_bytes()),
                Algorithm::HS256,
            ),
            "signed with what is public",
        ),
        (format!("{signed_part}."), "its signature cut off"),
        (unsigned, "not signed"),
        ("nonsense".to_owned(), "not a token"),
    ] {
        let refused = show(&server, &token).await;

        assert_eq!(refused.status, 401, "{why}: {refused:?}");
        assert_eq!(refused.json()["status"], "UNAUTHENTICATED", "{why}");
        assert!(
            !refused.body.contains("Expired") && !refused.body.contains("Invalid"),
            "{refused:?}"
        );
    }
    server
        .post("/flows/show", &json!({}))
        .await
        .assert_failure(401, "UNAUTHENTICATED");
}

#[tokio::test]
async fn keys_are_read_from_a_file_or_fetched_from_a_url() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    std::fs::write(&path, key_set(1)).unwrap();
    let issuer = Router::new().route("/keys", get(|| async { key_set(1) }));
    let issuer = Served::start(Server::new(&Registry::new()).merge(issuer)).await;
    let token = signed(&claims(), &key(1), Algorithm::EdDSA);

    let from_file = served(Jwks::file(path)).await;
    let from_url = served(Jwks::url(&issuer.url("/keys")).unwrap()).await;
    let unreachable = served(Jwks::url(&issuer.url("/nothing")).unwrap()).await;

    assert_eq!(show(&from_file, &token).await.status, 200);
    assert_eq!(show(&from_url, &token).await.status, 200);
    show(&unreachable, &token)
        .await
        .assert_failure(503, "UNAVAILABLE");
}

#[tokio::test]
async fn the_same_subject_of_two_issuers_is_two_principals() {
    use everturn_server::{CallRequest, ContextProvider};

    let principal = async |issuer: &str| {
        let tokens = JwtTokens::new(Jwks::from_json(&key_set(1)).unwrap(), "kitchen");
        let token = signed(&with("iss", issuer), &key(1), Algorithm::EdDSA);
        let mut headers = axum::http::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        let request = CallRequest::new(&axum::http::Method::POST, "/", &headers);
        tokens.provide(&request).await.unwrap()
    };

    assert_ne!(
        principal("https://a.example.com").await,
        principal("https://b.example.com").await
    );
    assert_eq!(
        principal("https://a.example.com").await,
        principal("https://a.example.com").await
    );
}
