//! A turn has the same result with the framing of every server.

use everturn_agent::AgentFinishReason;
use everturn_client::{RemoteAgent, RemoteFlow};
use everturn_core::Status;
use serde_json::{Value, json};

use crate::support::{Loopback, Reply, impatient, impatient_builder};

const CHUNK: &str = r#"{"message":{"modelChunk":{"content":[{"text":"grüß "}]}}}"#;
const CHUNK_2: &str = r#"{"message":{"modelChunk":{"content":[{"text":"dich"}]}}}"#;
const TURN_END: &str = r#"{"message":{"turnEnd":{"snapshotId":"r1","finishReason":"stop"}}}"#;
const RESULT: &str = r#"{"result":{"sessionId":"s","snapshotId":"r1","finishReason":"stop","message":{"role":"model","content":[{"text":"grüß dich"}]}}}"#;

/// Streams these bytes as a turn and expects the turn above.
async fn assert_understood(reply: Reply) {
    let server = Loopback::start([reply]).await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    let mut turn = chat.send("hi").await.unwrap();
    let mut text = String::new();
    while let Some(chunk) = turn.next().await {
        text.push_str(&chunk.unwrap().text());
    }
    let reply = turn.output().await.unwrap();

    assert_eq!(text, "grüß dich");
    assert_eq!(reply.text(), "grüß dich");
    assert_eq!(reply.finish_reason(), AgentFinishReason::Stop);
    assert_eq!(chat.snapshot_id().unwrap().as_str(), "r1");
    assert_eq!(chat.session_id().unwrap().as_str(), "s");
}

#[tokio::test]
async fn events_with_blank_lines_between_them() {
    assert_understood(Reply::stream(format!(
        "data: {CHUNK}\n\ndata: {CHUNK_2}\n\ndata: {TURN_END}\n\ndata: {RESULT}\n\n"
    )))
    .await;
}

#[tokio::test]
async fn plain_text_and_a_mark_at_the_end() {
    let body = format!("data: {CHUNK}\n\ndata: {CHUNK_2}\n\ndata: {RESULT}\n\nEND");

    assert_understood(Reply::new(200, "text/plain", body)).await;
}

#[tokio::test]
async fn carriage_returns_comments_names_and_ids() {
    assert_understood(Reply::stream(format!(
        ": hello\r\n\r\nevent: message\r\nid: 1\r\ndata:{CHUNK}\r\n\r\nretry: 5\r\nid: 2\r\ndata: {CHUNK_2}\r\n\r\ndata: {RESULT}\r\n\r\n"
    )))
    .await;
}

#[tokio::test]
async fn objects_on_lines_of_their_own() {
    assert_understood(Reply::new(
        200,
        "application/x-ndjson",
        format!("{CHUNK}\n{CHUNK_2}\n{RESULT}\n"),
    ))
    .await;
}

#[tokio::test]
async fn an_object_spread_over_lines() {
    let pretty = |event: &str| {
        let value: Value = serde_json::from_str(event).unwrap();
        let lines = serde_json::to_string_pretty(&value).unwrap();
        format!("data: {}\n", lines.replace('\n', "\ndata: "))
    };

    assert_understood(Reply::stream(format!(
        "{}\n{}\n{}\n",
        pretty(CHUNK),
        pretty(CHUNK_2),
        pretty(RESULT)
    )))
    .await;
}

#[tokio::test]
async fn a_last_event_without_its_end() {
    assert_understood(Reply::stream(format!(
        "data: {CHUNK}\n\ndata: {CHUNK_2}\n\ndata: {RESULT}"
    )))
    .await;
}

#[tokio::test]
async fn a_server_that_does_not_stream() {
    let server = Loopback::start([Reply::new(200, "application/json; charset=utf-8", RESULT)]).await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();

    let reply = agent.run_text("hi").await.unwrap();

    assert_eq!(reply.text(), "grüß dich");
}

#[tokio::test]
async fn errors_in_the_stream_keep_status_message_and_details() {
    let forms = [
        r#"data: {"error":{"status":"ABORTED","message":"busy","details":{"by":"t1"}}}"#,
        r#"error: {"error":{"details":{"by":"t1"},"status":"ABORTED","message":"busy"}}"#,
        r#"error: {"status":"ABORTED","message":"ABORTED: busy","details":{"by":"t1"}}"#,
        r#"data: {"error":{"error":{"status":"ABORTED","message":"busy","details":{"by":"t1"}}}}"#,
        r#"{"error":{"status":"ABORTED","message":"busy","details":{"by":"t1"}}}"#,
    ];
    for form in forms {
        let server = Loopback::start([Reply::stream(format!("data: {CHUNK}\n\n{form}\n\n"))]).await;
        let agent: RemoteAgent = impatient().agent(&server.url).unwrap();

        let error = agent.run_text("hi").await.unwrap_err();

        assert_eq!(error.status(), Status::Aborted, "{form}");
        assert_eq!(error.message(), "busy", "{form}");
        assert_eq!(error.details(), Some(&json!({"by": "t1"})), "{form}");
    }
}

#[tokio::test]
async fn an_event_that_is_too_large_is_refused_and_those_before_it_are_not() {
    let huge = "x".repeat(5000);
    let body = format!("data: {{\"message\":1}}\n\ndata: {{\"message\":\"{huge}\"}}\n\n");
    let server = Loopback::start([Reply::stream(body)]).await;
    let client = impatient_builder().max_bytes(1000).build().unwrap();
    let flow: RemoteFlow = client.flow(&server.url).unwrap();

    let mut stream = flow.stream(json!(null)).unwrap();
    let first = stream.next().await;
    let second = stream.next().await;
    let error = stream.output().await.unwrap_err();

    assert_eq!((first, second), (Some(json!(1)), None));
    assert_eq!(error.status(), Status::ResourceExhausted);
}

#[tokio::test]
async fn events_of_another_protocol_are_refused() {
    for body in [
        "data: hello\n\n",
        "data: [1]\n\n",
        "data: {\"message\"\n\ndata: 1\n\n",
    ] {
        let server = Loopback::start([Reply::stream(body)]).await;
        let agent: RemoteAgent = impatient().agent(&server.url).unwrap();

        let error = agent.run_text("hi").await.unwrap_err();

        assert_eq!(error.status(), Status::Internal, "{body}");
        assert_eq!(server.received().len(), 1, "{body}");
    }
}
