//! A request that is sent again with its key is answered with the stored turn.

use serde_json::{Value, json};

use crate::support::{Served, answer};

async fn send(server: &Served, path: &str, key: &str, body: &Value) -> Value {
    let request = server.request("POST", path).header("idempotency-key", key);
    answer(request.json(body)).await.json()
}

#[tokio::test]
async fn a_repeated_request_is_answered_with_the_stored_response() {
    let server = Served::answering(["One.", "Two.", "Three."]).await;
    let mut first = json!({"model": "keeper", "input": "1", "conversation": "c"});
    let one = send(&server, "/responses", "k1", &first).await;
    let one_again = send(&server, "/responses", "k1", &first).await;
    let next = json!({"model": "keeper", "input": "2", "previous_response_id": one["id"]});
    let two = send(&server, "/responses", "k2", &next).await;
    let two_again = send(&server, "/responses", "k2", &next).await;
    first["input"] = "3".into();
    let three = send(&server, "/responses", "k1", &first).await;

    let told = |response: &Value| {
        (
            response["id"].clone(),
            response["output"][0]["content"][0]["text"].clone(),
        )
    };
    assert_eq!(told(&one_again), told(&one));
    assert_eq!(told(&two_again), told(&two));
    assert_eq!(told(&three).1, "Three.");
    assert_eq!(server.model.requests().len(), 3);
}

#[tokio::test]
async fn a_repeated_request_for_a_chat_completion_is_answered_with_the_stored_turn() {
    let server = Served::answering(["One.", "Two."]).await;
    let messages = json!([{"role": "user", "content": "1"}]);
    let body = json!({"model": "keeper", "messages": messages, "metadata": {"conversation_id": "c"}});

    let one = send(&server, "/chat/completions", "k1", &body).await;
    let again = send(&server, "/chat/completions", "k1", &body).await;

    let text = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    assert_eq!((text(&one), text(&again)), (json!("One."), json!("One.")));
    assert_eq!(server.model.requests().len(), 1);
}
