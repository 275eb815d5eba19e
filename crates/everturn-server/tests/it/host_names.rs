//! Names by which a server is called: a page elsewhere whose name was made to resolve to this machine gets
//! nothing.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_core::{Registry, Status};
use everturn_server::{CorsLayer, Server};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::Served;
use crate::support::agents::{parrot, says};

fn server() -> Server {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    Server::new(&registry)
}

/// Sends a request with this `Host` and a matching `Origin`, as a browser does, and gives the head of the
/// answer.
async fn ask(address: &str, request: &str, host: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "{request} HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("\r\n\r\n") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status lines of a turn, a health check and a WebSocket that are requested under this name.
async fn answers(server: &Served, host: &str) -> [u16; 3] {
    let address = server.base.trim_start_matches("http://");
    let websocket = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: everturn.v1\r\n";
    let json = "content-type: application/json\r\n";
    let turn = says("hi").to_string();
    let answers = [
        ask(address, "POST /agents/parrot", host, json, &turn).await,
        ask(address, "GET /healthz", host, "", "").await,
        ask(address, "GET /agents/parrot", host, websocket, "").await,
    ];
    answers.map(|answer| answer.split(' ').nth(1).unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_loopback_server_does_not_answer_to_a_foreign_name() {
    let server = Served::start(server()).await;

    for own in ["localhost", "localhost:8080", "127.0.0.1", "[::1]:8080"] {
        assert_eq!(answers(&server, own).await, [200, 200, 101], "{own}");
    }
    for foreign in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "10.0.0.1",
    ] {
        assert_eq!(answers(&server, foreign).await, [403, 403, 403], "{foreign}");
    }
}

#[tokio::test]
async fn a_loopback_server_accepts_allowed_names() {
    let named = Served::start(server().allowed_hosts(["kitchen.example"])).await;
    let any = Served::start(server().any_host()).await;

    assert_eq!(answers(&named, "kitchen.example").await, [200, 200, 101]);
    assert_eq!(answers(&named, "localhost").await, [200, 200, 101]);
    assert_eq!(answers(&named, "evil.example").await, [403, 403, 403]);
    assert_eq!(answers(&any, "evil.example").await, [200, 200, 101]);
}

#[tokio::test]
async fn another_server_checks_names_only_if_some_are_given() {
    let start = async |server: Server| {
        let bound = server.bind(("0.0.0.0", 0)).await.unwrap();
        let address = format!("127.0.0.1:{}", bound.address().port());
        (address, bound.handle(), tokio::spawn(bound.run()))
    };
    let (open, ..) = start(server().allow_everyone()).await;
    let (named, ..) = start(server().allow_everyone().allowed_hosts(["kitchen.example"])).await;

    for (address, host, status) in [
        (&open, "kitchen.example", "200"),
        (&named, "kitchen.example", "200"),
        (&named, "evil.example", "403"),
    ] {
        let answer = ask(address, "GET /healthz", host, "", "").await;

        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[tokio::test]
async fn a_request_names_its_host_once_and_as_its_target_does() {
    let server = Served::start(server()).await;
    let address = server.base.trim_start_matches("http://");

    let twice = ask(address, "GET /healthz", "localhost", "host: evil.example\r\n", "").await;
    let absolute = ask(address, "GET http://evil.example/healthz", "localhost", "", "").await;
    let refused = server
        .client
        .get(server.url("/healthz"))
        .header("host", "evil.example");
    let refused = crate::support::answer(refused).await;

    assert!(twice.starts_with("HTTP/1.1 400 "), "{twice}");
    assert!(absolute.starts_with("HTTP/1.1 403 "), "{absolute}");
    refused.assert_failure(403, "PERMISSION_DENIED");
    assert!(refused.body.contains("allowed_hosts"), "{refused:?}");
}

#[tokio::test]
async fn a_name_that_cannot_be_a_host_is_refused_when_the_server_is_bound() {
    let error = server()
        .allowed_hosts(["https://kitchen.example"])
        .bind(("127.0.0.1", 0))
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn an_empty_body_must_be_sent_as_json_too() {
    let registry = Registry::new();
    registry
        .define_flow("now", |(): ()| async { Ok("noon".to_owned()) })
        .unwrap();
    let server = Served::of(&registry).await;

    let simple = server.client.post(server.url("/flows/now"));
    let form = server
        .client
        .post(server.url("/flows/now"))
        .header("content-type", "text/plain");
    let json = server.post("/flows/now", &json!({})).await;

    crate::support::answer(simple)
        .await
        .assert_failure(415, "INVALID_ARGUMENT");
    crate::support::answer(form)
        .await
        .assert_failure(415, "INVALID_ARGUMENT");
    assert_eq!(json.result(), json!("noon"));
}

#[tokio::test]
async fn pages_of_other_origins_get_nothing_unless_they_are_allowed() {
    let strict = Served::start(server()).await;
    let named = Served::start(server().allowed_hosts(["kitchen.example"])).await;
    let open = Served::start(server().cors(CorsLayer::permissive())).await;
    let status = async |server: &Served, origin: &str| {
        let turn = server
            .request("/agents/parrot", &says("hi"))
            .header("origin", origin);
        let health = server.client.get(server.url("/healthz")).header("origin", origin);
        [
            crate::support::answer(turn).await.status,
            crate::support::answer(health).await.status,
        ]
    };

    for foreign in [
        "https://evil.example",
        "null",
        "http://127.0.0.1:1",
        "http://localhost",
        "",
    ] {
        assert_eq!(status(&strict, foreign).await, [403, 403], "{foreign}");
    }
    assert_eq!(status(&strict, &strict.base).await, [200, 200]);
    assert_eq!(status(&named, "https://kitchen.example").await, [200, 200]);
    assert_eq!(status(&named, "https://evil.example").await, [403, 403]);
    assert_eq!(status(&open, "https://evil.example").await, [200, 200]);
}
