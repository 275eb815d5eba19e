//! Callers known by signed tokens: good ones are let in, all others learn nothing.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::get;
use everturn_core::{Action, ActionType, Context, Emitter, Error, Registry, Result, Status};
use everturn_server::{
    CallRequest, ContextProvider, Jwks, JwtTokens, Principal, PrincipalId, Provided, Server,
};
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

/// The result of a provider for a token.
async fn provided(tokens: &JwtTokens, token: &str) -> Result<Provided> {
    let mut headers = axum::http::HeaderMap::new();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    let request = CallRequest::new(&axum::http::Method::POST, "/", &headers);
    tokens.provide(&request).await.map_err(Error::from)
}

fn tokens() -> JwtTokens {
    JwtTokens::new(Jwks::from_json(&key_set(1)).unwrap(), "kitchen")
}

/// The answer for these claims, signed with the right key.
async fn provided_for(tokens: &JwtTokens, claims: &Value) -> Result<Provided> {
    provided(tokens, &signed(claims, &key(1), Algorithm::EdDSA)).await
}

fn shows(provided: &Provided, principal: &str) {
    let text = format!("{provided:?}");
    assert!(text.contains(principal), "{text}");
}

#[tokio::test]
async fn the_same_subject_of_two_issuers_is_two_principals() {
    let principal = async |issuer: &str| provided_for(&tokens(), &with("iss", issuer)).await.unwrap();

    assert_ne!(
        principal("https://a.example.com").await,
        principal("https://b.example.com").await
    );
    assert_eq!(
        principal("https://a.example.com").await,
        principal("https://a.example.com").await
    );
}

#[tokio::test]
async fn the_id_of_a_principal_is_made_of_the_claims_that_are_chosen() {
    let claims = with("email", "alice@example.com");
    for (id, expected) in [
        (
            PrincipalId::IssuerAndSubject,
            format!("{}:{ISSUER}:alice", ISSUER.len()),
        ),
        (PrincipalId::Subject, "alice".to_owned()),
        (
            PrincipalId::Claim("email".to_owned()),
            "alice@example.com".to_owned(),
        ),
    ] {
        let given = provided_for(&tokens().principal_id(id), &claims).await.unwrap();
        assert_eq!(given.clone().with_principal(Principal::new(expected)), given);
    }
    let by_email = tokens().principal_id(PrincipalId::Claim("email".to_owned()));
    let missing = provided_for(&by_email, &self::claims()).await.unwrap_err();
    assert_eq!(missing.status(), Status::Unauthenticated);
    assert!(missing.public_message().unwrap().contains("'email'"), "{missing}");
}

#[tokio::test]
async fn the_tenant_is_a_claim_and_cannot_be_missing() {
    let in_organisations = || tokens().principal_id(PrincipalId::Subject).tenant_claim("org");

    let given = provided_for(&in_organisations(), &with("org", "acme"))
        .await
        .unwrap();
    shows(&given, "Principal(\"alice\" in \"acme\")");
    for wrong in [claims(), with("org", ""), with("org", 7)] {
        let refused = provided_for(&in_organisations(), &wrong).await.unwrap_err();
        assert_eq!(refused.status(), Status::Unauthenticated, "{wrong}");
    }
}

#[tokio::test]
async fn roles_are_a_list_or_words_of_the_claim_that_is_named() {
    let roles = async |tokens: JwtTokens, claims: Value| {
        let registry = Registry::new();
        let show = |(): (), caller: Principal| async move {
            Ok(caller.roles().map(str::to_owned).collect::<Vec<_>>())
        };
        registry.define_flow("show", show).unwrap();
        let server = Served::start(Server::new(&registry).context(tokens)).await;
        let token = signed(&claims, &key(1), Algorithm::EdDSA);
        show_at(&server, &token).await.result()
    };
    let realm = with("realm_access", json!({ "roles": ["staff"] }));

    assert_eq!(
        roles(tokens(), with("roles", json!(["staff", "cook"]))).await,
        json!(["staff", "cook", "chef"])
    );
    assert_eq!(
        roles(tokens(), with("roles", "staff cook")).await,
        json!(["staff", "cook", "chef"])
    );
    assert_eq!(
        roles(tokens().roles_claim("scope"), with("scope", "read  write")).await,
        json!(["read", "write"])
    );
    assert_eq!(
        roles(tokens().roles_claim("/realm_access/roles"), realm).await,
        json!(["staff"])
    );
    // Only the named claim counts.
    assert_eq!(
        roles(tokens().roles_claim("groups"), with("roles", json!(["operator"]))).await,
        json!([])
    );
}

async fn show_at(server: &Served, token: &str) -> Answer {
    answer(server.request("/flows/show", &json!({})).bearer_auth(token)).await
}

const SECRET: &[u8] = b"a secret that is at least 32 bytes";

#[tokio::test]
async fn a_shared_secret_signs_hs256_and_nothing_else() {
    let tokens = JwtTokens::with_secret(SECRET, "kitchen")
        .unwrap()
        .principal_id(PrincipalId::Subject);
    let secret = EncodingKey::from_secret(SECRET);

    let given = provided(&tokens, &signed(&claims(), &secret, Algorithm::HS256))
        .await
        .unwrap();
    assert_eq!(given.clone().with_principal(Principal::new("alice")), given);
    let unsigned = {
        let good = signed(&claims(), &secret, Algorithm::HS256);
        format!("{}.", good.rsplit_once('.').unwrap().0)
    };
    for (token, why) in [
        (signed(&claims(), &secret, Algorithm::HS384), "another algorithm"),
        (
            signed(&claims(), &key(1), Algorithm::EdDSA),
            "a public key's algorithm",
        ),
        (
            signed(
                &claims(),
                &EncodingKey::from_secret(b"another secret"),
                Algorithm::HS256,
            ),
            "another secret",
        ),
        (
            signed(&with("aud", "garage"), &secret, Algorithm::HS256),
            "another audience",
        ),
        (signed(&without("exp"), &secret, Algorithm::HS256), "no expiry"),
        (unsigned, "no signature"),
    ] {
        let refused = provided(&tokens, &token).await.unwrap_err();
        assert_eq!(refused.status(), Status::Unauthenticated, "{why}");
    }
    assert!(!format!("{tokens:?}").contains("32 bytes"));
    let short = JwtTokens::with_secret("too short", "kitchen").unwrap_err();
    assert_eq!(short.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn a_public_key_is_never_taken_for_a_secret() {
    // Everything public that a forger may sign with: the key's text, its bytes, and a symmetric key in the
    // set.
    let set: Value = serde_json::from_str(&key_set(1)).unwrap();
    let x = set["keys"][0]["x"].as_str().unwrap().to_owned();
    let symmetric = json!({ "keys": [{ "kty": "oct", "kid": "k1", "k": x }] }).to_string();
    let unmarked = {
        let mut set = set;
        set["keys"][0].as_object_mut().unwrap().remove("alg");
        set.to_string()
    };
    for keys in [key_set(1), unmarked, symmetric] {
        let tokens = JwtTokens::new(Jwks::from_json(&keys).unwrap(), "kitchen");
        for secret in [keys.as_bytes().to_vec(), x.as_bytes().to_vec()] {
            for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
                let forged = signed(&claims(), &EncodingKey::from_secret(&secret), algorithm);
                let refused = provided(&tokens, &forged).await.unwrap_err();
                assert_eq!(refused.status(), Status::Unauthenticated);
            }
        }
        let forged = EncodingKey::from_base64_secret(&x.replace('-', "+").replace('_', "/"));
        if let Ok(bytes) = forged {
            let forged = signed(&claims(), &bytes, Algorithm::HS256);
            assert!(provided(&tokens, &forged).await.is_err());
        }
    }
}
