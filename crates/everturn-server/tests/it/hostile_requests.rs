//! Requests that are wrong, malicious or broken off: always a clean refusal of the same form, and the server
//! goes on.

use std::fmt::Write as _;
use std::time::Duration;

use everturn_core::{Context, Registry};
use everturn_server::{Limits, Server};
use everturn_testkit::in_time;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Answer, Served, answer};

const ECHO: &str = "/flows/echo";

async fn served_with(limits: Limits) -> Served {
    let registry = Registry::new();
    registry
        .define_flow("echo", |input: Value| async move { Ok(input) })
        .unwrap();
    Served::start(Server::new(&registry).limits(limits)).await
}

async fn served() -> Served {
    served_with(Limits::default()).await
}

async fn raw(server: &Served, content_type: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = server
        .client
        .post(server.url(ECHO))
        .header("content-type", content_type);
    answer(request.body(body)).await
}

/// Sends bytes as they are and reads until the server closes.
async fn wire(server: &Served, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.base.trim_start_matches("http://"))
        .await
        .unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    in_time("the server closes", reading).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[track_caller]
fn assert_still_serving(answer: &Answer) {
    assert_eq!(answer.result(), json!("still here"));
}

#[tokio::test]
async fn a_path_that_does_not_exist_is_not_found() {
    let server = served().await;

    for path in [
        "/flows",
        "/flows/",
        "/flows/none",
        "/flows/echo/",
        "/%00",
        "/..%2f..%2fetc",
    ] {
        server.get(path).await.assert_no_such_path();
    }
}

#[tokio::test]
async fn a_method_that_is_not_offered_is_refused_with_those_that_are() {
    let server = served().await;

    for method in ["GET", "PUT", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let answer = answer(server.client.request(method, server.url(ECHO))).await;

        answer.assert_failure(405, "UNIMPLEMENTED");
        assert_eq!(answer.header("allow"), Some("POST"));
    }
}

#[tokio::test]
async fn a_body_that_is_not_sent_as_json_is_refused() {
    let server = served().await;
    let untyped = server.client.post(server.url(ECHO)).body(r#"{"data":1}"#);

    let text = raw(&server, "text/plain", r#"{"data":1}"#).await;
    let form = raw(&server, "application/x-www-form-urlencoded", "data=1").await;
    let untyped = answer(untyped).await;

    for answer in [text, form, untyped] {
        answer.assert_failure(415, "INVALID_ARGUMENT");
    }
}

#[tokio::test]
async fn a_body_that_is_not_the_envelope_is_refused() {
    let server = served().await;

    for body in [
        "{",
        "[]",
        "1",
        "null",
        "\"x\"",
        r#"{"input":1}"#,
        r#"{"data":1,"data":2}"#,
        "\u{feff}{}",
        "{\"data\":1}x",
    ] {
        let answer = raw(&server, "application/json", body).await;

        answer.assert_failure(400, "INVALID_ARGUMENT");
    }
    raw(&server, "application/json", vec![b'{', 0xff, 0xfe])
        .await
        .assert_failure(400, "INVALID_ARGUMENT");
}

#[tokio::test]
async fn nesting_that_is_too_deep_is_refused_wherever_it_is() {
    let server = served().await;
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));

    for body in [
        format!(r#"{{"data":{}}}"#, deep(10_000)),
        format!(r#"{{"init":{}}}"#, deep(10_000)),
        deep(100_000),
        "[".repeat(1_000_000),
        r#"{"data":"#.repeat(10_000),
    ] {
        let answer = raw(&server, "application/json", body).await;

        answer.assert_failure(400, "INVALID_ARGUMENT");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_however_it_is_sent() {
    let server = served_with(Limits::default().body_bytes(1024)).await;
    let large = vec![b' '; 10 * 1024 * 1024];

    let announced = raw(&server, "application/json", large.clone()).await;
    let pieces = futures::stream::iter((0..5000).map(|_| Ok::<_, std::io::Error>(vec![b' '; 512])));
    let in_pieces = raw(&server, "application/json", reqwest::Body::wrap_stream(pieces)).await;
    let next = server.post(ECHO, &json!({ "data": "still here" })).await;

    announced.assert_failure(413, "INVALID_ARGUMENT");
    in_pieces.assert_failure(413, "INVALID_ARGUMENT");
    assert_still_serving(&next);
}

#[tokio::test]
async fn a_client_that_expects_100_continue_is_refused_at_once() {
    let server = served_with(Limits::default().body_bytes(16)).await;

    let request = "POST /flows/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
                   content-length: 100000000\r\nexpect: 100-continue\r\n\r\n";
    let answer = wire(&server, request.as_bytes()).await;

    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn a_body_that_takes_too_long_is_not_waited_for() {
    let server = served_with(Limits::default().body_time(Duration::from_millis(50))).await;

    let request = "POST /flows/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
                   content-length: 10\r\n\r\n{\"da";
    let answer = wire(&server, request.as_bytes()).await;

    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("DEADLINE_EXCEEDED"), "{answer}");
}

#[tokio::test]
async fn a_head_that_takes_too_long_is_not_waited_for() {
    let server = served_with(Limits::default().header_time(Duration::from_millis(50))).await;

    let answer = wire(&server, b"POST /flows/echo HTTP/1.1\r\nhost: localhost\r\n").await;
    let next = server.post(ECHO, &json!({ "data": "still here" })).await;

    assert!(!answer.contains("200 OK"), "{answer}");
    assert_still_serving(&next);
}

#[tokio::test]
async fn an_incomplete_body_affects_no_other_request() {
    let server = served().await;
    let mut stream = TcpStream::connect(server.base.trim_start_matches("http://"))
        .await
        .unwrap();

    let head = "POST /flows/echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    drop(stream);
    let next = server.post(ECHO, &json!({ "data": "still here" })).await;

    assert_still_serving(&next);
}

#[tokio::test]
async fn a_flood_of_headers_is_refused() {
    let server = served().await;
    let mut many = String::from("POST /flows/echo HTTP/1.1\r\nhost: localhost\r\n");
    for n in 0..10_000 {
        write!(many, "x-{n}: y\r\n").unwrap();
    }
    let long = format!(
        "POST /flows/echo HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
        "y".repeat(1024 * 1024)
    );

    for request in [many + "\r\n", long] {
        let answer = wire(&server, request.as_bytes()).await;

        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let next = server.post(ECHO, &json!({ "data": "still here" })).await;
    assert_still_serving(&next);
}

#[tokio::test]
async fn bytes_that_are_not_http_are_refused() {
    let server = served().await;

    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
        b"hello\r\n\r\n",
        b"POST /flows/echo HTTP/9.9\r\n\r\n",
    ] {
        let answer = wire(&server, bytes).await;

        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
}

#[tokio::test]
async fn a_stream_parameter_that_is_neither_true_nor_false_is_refused() {
    let server = served().await;

    let answer = server
        .post("/flows/echo?stream=perhaps", &json!({ "data": 1 }))
        .await;

    answer.assert_failure(400, "INVALID_ARGUMENT");
}

#[tokio::test]
async fn a_call_that_takes_too_long_ends_with_a_deadline() {
    let registry = Registry::new();
    let forever = |(): ()| async move {
        std::future::pending::<()>().await;
        Ok(Context::current().is_cancelled())
    };
    registry.define_flow("forever", forever).unwrap();
    let limits = Limits::default().request_time(Duration::from_millis(50));
    let server = Served::start(Server::new(&registry).limits(limits)).await;

    let unary = server.post("/flows/forever", &json!({})).await;
    let streamed = server.stream("/flows/forever", &json!({})).await;

    unary.assert_failure(504, "DEADLINE_EXCEEDED");
    assert_eq!(streamed.events()[0]["error"]["status"], "DEADLINE_EXCEEDED");
}
