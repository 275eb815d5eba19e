//! An error response of any server keeps its status and its message.

use everturn_client::{Client, RemoteAgent, RemoteFlow};
use everturn_core::Status;
use serde_json::json;

use crate::support::{Loopback, Reply, at_once, impatient, impatient_builder};

async fn refusal(reply: Reply) -> (Status, String) {
    let server = Loopback::start([reply]).await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();
    let error = agent.run_text("hi").await.unwrap_err();
    assert_eq!(server.received().len(), 1, "a turn is sent once");
    (error.status(), error.message().to_owned())
}

#[tokio::test]
async fn each_kind_of_server_is_understood() {
    let json = "application/json; charset=utf-8";
    let cases = [
        (
            Reply::new(
                403,
                json,
                r#"{"status":"PERMISSION_DENIED","message":"Permission Denied"}"#,
            ),
            Status::PermissionDenied,
            "Permission Denied",
        ),
        (
            Reply::new(
                400,
                json,
                r#"{"error":{"status":"FAILED_PRECONDITION","message":"no store"}}"#,
            ),
            Status::FailedPrecondition,
            "no store",
        ),
        (
            Reply::new(400, "text/plain; charset=utf-8", "failed precondition\n"),
            Status::FailedPrecondition,
            "failed precondition",
        ),
        (
            Reply::new(404, "text/plain; charset=utf-8", "snapshot 'x' not found\n"),
            Status::NotFound,
            "snapshot 'x' not found",
        ),
        (
            Reply::new(401, json, r#"{"detail":"who are you"}"#),
            Status::Unauthenticated,
            "who are you",
        ),
        (
            Reply::new(502, "text/html", "<h1>Bad gateway</h1>"),
            Status::Internal,
            "the server answered 502 Bad Gateway",
        ),
        (
            Reply::empty(429),
            Status::ResourceExhausted,
            "the server answered 429 Too Many Requests",
        ),
    ];
    for (reply, status, message) in cases {
        assert_eq!(refusal(reply).await, (status, message.to_owned()));
    }
}

#[tokio::test]
async fn credentials_are_not_taken_elsewhere() {
    let elsewhere = Loopback::start([]).await;
    let server = Loopback::start([Reply::empty(307).header("location", &elsewhere.url)]).await;
    let client = Client::builder().header("x-api-key", "secret").build().unwrap();
    let agent: RemoteAgent = client.agent(&server.url).unwrap();

    let error = agent.run_text("hi").await.unwrap_err();

    assert_eq!(error.message(), "the server answered 307 Temporary Redirect");
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn a_turn_that_failed_is_found_in_its_error() {
    let body = json!({"result": {
        "sessionId": "s", "snapshotId": "good", "finishReason": "failed",
        "error": {"status": "UNAVAILABLE", "message": "the model is away"},
    }});
    let server = Loopback::start([Reply::stream(format!("data: {body}\n\n"))]).await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    let error = chat.run("hi").await.unwrap_err();

    assert_eq!(
        (error.status(), error.message()),
        (Status::Unavailable, "the model is away")
    );
    assert_eq!(chat.snapshot_id().unwrap().as_str(), "good");
}

#[tokio::test]
async fn a_reply_that_is_none_is_an_error_of_the_server() {
    let server = Loopback::start([
        Reply::new(200, "text/html", "<p>Welcome</p>"),
        Reply::json(&json!([1])),
    ])
    .await;
    let flow: RemoteFlow = impatient().flow(&server.url).unwrap();

    assert_eq!(flow.run(json!(1)).await.unwrap_err().status(), Status::Internal);
    assert_eq!(flow.run(json!(1)).await.unwrap_err().status(), Status::Internal);
}

#[tokio::test]
async fn an_output_of_another_type_is_an_error() {
    let server = Loopback::start([Reply::json(&json!({"result": "seven"}))]).await;
    let flow: RemoteFlow<u32, u32> = impatient().flow(&server.url).unwrap();

    let error = flow.run(7).await.unwrap_err();

    assert_eq!(error.status(), Status::Internal);
    assert!(error.message().contains("seven"), "{error}");
}

#[tokio::test]
async fn a_reply_that_is_too_large_is_not_taken_in() {
    let server = Loopback::start([Reply::json(&json!({"result": "x".repeat(5000)}))]).await;
    let client = impatient_builder().max_bytes(1000).build().unwrap();
    let flow: RemoteFlow = client.flow(&server.url).unwrap();

    let error = flow.run(json!(1)).await.unwrap_err();

    assert_eq!(error.status(), Status::ResourceExhausted);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_its_address_is_named_without_secrets() {
    // Port 9 on loopback has no listener.
    let client = impatient_builder().retries(at_once(1)).build().unwrap();
    let agent: RemoteAgent = client
        .agent("http://user:secret@127.0.0.1:9/agent?key=secret")
        .unwrap();

    let error = agent.run_text("hi").await.unwrap_err();

    assert_eq!(error.status(), Status::Unavailable);
    assert!(error.message().contains("http://127.0.0.1:9/agent"), "{error}");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

#[test]
fn an_address_that_is_none_is_refused_at_once() {
    for url in [
        "",
        "chef",
        "/chef",
        "ftp://host/chef",
        "mailto:chef@host",
        "http://",
    ] {
        let error = RemoteAgent::<serde_json::Value>::new(url).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{url}");
    }
}
