//! Callers known by signed tokens: good ones are let in, all others learn nothing.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use everturn_core::{Action, ActionType, Context, Emitter, Error, Registry, Result, Status};
use everturn_server::{
    CallRequest, ContextProvider, Jwks, JwtTokens, Principal, PrincipalId, Provided, Server,
};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

use crate::support::{Answer, Served, answer};

const ISSUER: &str = "https://login.example.com";

/// The private half of a key: makes the signature of a message.
type Key = Box<dyn Fn(&[u8]) -> Vec<u8>>;

fn key_pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

/// A key made from a number, as the issuer has it.
fn key(seed: u8) -> Key {
    let pair = key_pair(seed);
    Box::new(move |message| pair.sign(message).as_ref().to_vec())
}

fn secret(bytes: &[u8], algorithm: &str) -> Key {
    let key = match algorithm {
        "HS256" => hmac::Key::new(hmac::HMAC_SHA256, bytes),
        "HS384" => hmac::Key::new(hmac::HMAC_SHA384, bytes),
        _ => hmac::Key::new(hmac::HMAC_SHA512, bytes),
    };
    Box::new(move |message| hmac::sign(&key, message).as_ref().to_vec())
}

/// The issuer's key set, with one key.
fn key_set(seed: u8) -> String {
    let x = URL_SAFE_NO_PAD.encode(key_pair(seed).public_key());
    let key = json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "k1", "x": x });
    json!({ "keys": [key] }).to_string()
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

fn signed(claims: &Value, key: &Key, algorithm: &str) -> String {
    signed_under(
        &json!({ "typ": "JWT", "alg": algorithm, "kid": "k1" }),
        claims,
        key,
    )
}

fn signed_under(header: &Value, claims: &Value, key: &Key) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(key(message.as_bytes()));
    format!("{message}.{signature}")
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

    let shown = show(&server, &signed(&claims(), &key(1), "EdDSA")).await.result();

    assert_eq!(shown["sub"], "alice");
    assert_eq!(shown["role"], "chef");
}

#[tokio::test]
async fn a_token_that_is_not_good_is_refused_without_a_reason() {
    let server = served(Jwks::from_json(&key_set(1)).unwrap()).await;
    let sign = |claims: &Value| signed(claims, &key(1), "EdDSA");
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
        (signed(&claims(), &key(2), "EdDSA"), "signed with another key"),
        (
            signed(&claims(), &secret(key_set(1).as_bytes(), "HS256"), "HS256"),
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
    let token = signed(&claims(), &key(1), "EdDSA");

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
    provided(tokens, &signed(claims, &key(1), "EdDSA")).await
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
        let token = signed(&claims, &key(1), "EdDSA");
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
    let given = provided(&tokens, &signed(&claims(), &secret(SECRET, "HS256"), "HS256"))
        .await
        .unwrap();
    assert_eq!(given.clone().with_principal(Principal::new("alice")), given);
    let unsigned = {
        let good = signed(&claims(), &secret(SECRET, "HS256"), "HS256");
        format!("{}.", good.rsplit_once('.').unwrap().0)
    };
    for (token, why) in [
        (
            signed(&claims(), &secret(SECRET, "HS384"), "HS384"),
            "another algorithm",
        ),
        (signed(&claims(), &key(1), "EdDSA"), "a public key's algorithm"),
        (
            signed(&claims(), &secret(b"another secret", "HS256"), "HS256"),
            "another secret",
        ),
        (
            signed(&with("aud", "garage"), &secret(SECRET, "HS256"), "HS256"),
            "another audience",
        ),
        (
            signed(&without("exp"), &secret(SECRET, "HS256"), "HS256"),
            "no expiry",
        ),
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
            for algorithm in ["HS256", "HS384", "HS512"] {
                let forged = signed(&claims(), &self::secret(&secret, algorithm), algorithm);
                let refused = provided(&tokens, &forged).await.unwrap_err();
                assert_eq!(refused.status(), Status::Unauthenticated);
            }
        }
        let bytes = URL_SAFE_NO_PAD.decode(&x).unwrap();
        let forged = signed(&claims(), &self::secret(&bytes, "HS256"), "HS256");
        assert!(provided(&tokens, &forged).await.is_err());
    }
}

/// A key of an elliptic curve, as the issuer and as its key set have it.
fn elliptic(algorithm: &'static EcdsaSigningAlgorithm, curve: &str) -> (Value, Key) {
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &SystemRandom::new()).unwrap();
    let point = &pair.public_key().as_ref()[1..];
    let (x, y) = point.split_at(point.len() / 2);
    let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
    let jwk = json!({ "kty": "EC", "crv": curve, "x": x, "y": y });
    let sign = move |message: &[u8]| pair.sign(&SystemRandom::new(), message).unwrap();
    (jwk, Box::new(move |message| sign(message).as_ref().to_vec()))
}

/// A key that serves for nothing but these tests.
fn rsa(padding: &'static dyn RsaEncoding) -> (Value, Key) {
    let pair = RsaKeyPair::from_pkcs8(include_bytes!("rsa_key.der")).unwrap();
    let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
    let (n, e) = (URL_SAFE_NO_PAD.encode(public.n), URL_SAFE_NO_PAD.encode(public.e));
    let sign = move |message: &[u8]| {
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(padding, &SystemRandom::new(), message, &mut signature)
            .unwrap();
        signature
    };
    (json!({ "kty": "RSA", "n": n, "e": e }), Box::new(sign))
}

#[tokio::test]
async fn each_algorithm_is_accepted_with_its_kind_of_key_and_refused_under_another_name() {
    let edwards =
        json!({ "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(key_pair(1).public_key()) });
    let keys: [(&str, (Value, Key)); 9] = [
        ("EdDSA", (edwards, key(1))),
        ("ES256", elliptic(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256")),
        ("ES384", elliptic(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384")),
        ("RS256", rsa(&RSA_PKCS1_SHA256)),
        ("RS384", rsa(&RSA_PKCS1_SHA384)),
        ("RS512", rsa(&RSA_PKCS1_SHA512)),
        ("PS256", rsa(&RSA_PSS_SHA256)),
        ("PS384", rsa(&RSA_PSS_SHA384)),
        ("PS512", rsa(&RSA_PSS_SHA512)),
    ];
    let names: Vec<_> = keys
        .iter()
        .map(|(name, _)| *name)
        .chain(["none", "HS256"])
        .collect();
    for (own, (jwk, key)) in &keys {
        let unmarked = json!({ "keys": [jwk] });
        let mut marked = unmarked.clone();
        marked["keys"][0]["alg"] = "RS999".into();
        let tokens = |keys: &Value| JwtTokens::new(Jwks::from_json(&keys.to_string()).unwrap(), "kitchen");
        for name in &names {
            let token = signed_under(&json!({ "alg": name }), &claims(), key);

            let given = provided(&tokens(&unmarked), &token).await;
            let of_another = provided(&tokens(&marked), &token).await;

            assert_eq!(given.is_ok(), name == own, "{own} as {name}: {given:?}");
            assert!(of_another.is_err(), "{own} as {name}: {of_another:?}");
        }
    }
}

#[tokio::test]
async fn a_token_with_a_required_extension_or_claims_of_the_wrong_type_is_refused() {
    let header = json!({ "alg": "EdDSA", "kid": "k1" });
    let extended = json!({ "alg": "EdDSA", "kid": "k1", "crit": ["b64"], "b64": false });
    let listed = with("aud", json!(["garage", "kitchen"]));
    let tokens = tokens().issuer(ISSUER);

    let given = provided(&tokens, &signed_under(&header, &listed, &key(1))).await;
    assert!(given.is_ok(), "{given:?}");
    for (header, claims) in [
        (&extended, claims()),
        (&header, with("exp", in_an_hour().to_string())),
        (&header, with("nbf", "now")),
        (&header, with("iss", json!([ISSUER]))),
        (&header, with("aud", json!([]))),
        (&header, json!([claims()])),
    ] {
        let refused = provided(&tokens, &signed_under(header, &claims, &key(1)))
            .await
            .unwrap_err();
        assert_eq!(refused.status(), Status::Unauthenticated, "{header} {claims}");
        assert_eq!(refused.public_message(), Some("the token is not valid"));
    }
}
