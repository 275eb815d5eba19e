//! A request that is sent again with its id is answered with the stored turn.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_core::Registry;
use serde_json::{Value, json};

use crate::support::agents::{parrot, says_in};
use crate::support::{Served, answer};

#[tokio::test]
async fn a_request_is_recognised_by_its_id_or_its_key_and_its_input() {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    let server = Served::of(&registry).await;
    let send = async |text: &str, headers: &[(&str, &str)]| {
        let body = says_in(text, &json!({"sessionId": "s"}));
        let mut request = server.request("/agents/parrot", &body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer: Value = serde_json::from_str(&answer(request).await.body).unwrap();
        answer["result"]["snapshotId"].as_str().unwrap().to_owned()
    };

    let first = send("yes", &[("x-request-id", "r1")]).await;
    let repeated = send("yes", &[("x-request-id", "r1")]).await;
    let other_input = send("no", &[("x-request-id", "r1")]).await;
    let (unnamed, unnamed_again) = (send("yes", &[]).await, send("yes", &[]).await);
    let keyed = send("yes", &[("x-request-id", "r1"), ("idempotency-key", "k1")]).await;
    let keyed_again = send("yes", &[("x-request-id", "r2"), ("idempotency-key", "k1")]).await;

    assert_eq!(repeated, first);
    assert_eq!(keyed_again, keyed);
    let all = [&first, &other_input, &unnamed, &unnamed_again, &keyed];
    let different: std::collections::BTreeSet<_> = all.into_iter().collect();
    assert_eq!(different.len(), all.len());
}

#[tokio::test]
async fn a_turn_that_got_an_id_from_the_server_is_recognised_by_it() {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    let server = Served::of(&registry).await;
    let body = says_in("yes", &json!({"sessionId": "s"}));

    let first = answer(server.request("/agents/parrot", &body)).await;
    let id = first.header("x-request-id").unwrap();
    let repeated = answer(server.request("/agents/parrot", &body).header("x-request-id", id)).await;

    let snapshot = |body: &str| serde_json::from_str::<Value>(body).unwrap()["result"]["snapshotId"].clone();
    assert_eq!(snapshot(&first.body), snapshot(&repeated.body));
    assert_ne!(snapshot(&first.body), Value::Null);
}
