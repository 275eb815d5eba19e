//! A repeated request with the same key returns the stored turn.

use serde_json::{Value, json};

use crate::support::{Answer, Served, answer, user};

async fn run(server: &Served, run: &str, key: &str, messages: Value) -> Answer {
    let body = json!({"threadId": "t", "runId": run, "protocolVersion": "1.0", "messages": messages});
    let request = server.request("POST", "/agui/keeper");
    answer(request.header("idempotency-key", key).json(&body)).await
}

#[tokio::test]
async fn a_repeated_run_is_answered_with_the_stored_turn() {
    let server = Served::answering(["One.", "Two."]).await;

    let one = run(&server, "r1", "k1", json!([user("u1", "1")])).await;
    let again = run(&server, "r1", "k1", json!([user("u1", "1")])).await;
    let two = run(&server, "r2", "k2", json!([user("u2", "2")])).await;

    assert_eq!(
        [one, again, two].map(|answer| answer.text()),
        ["One.", "One.", "Two."]
    );
    assert_eq!(server.model.requests().len(), 2);
    assert_eq!(server.thread().await.len(), 4);
}
