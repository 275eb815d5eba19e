//! Hostile input, byte for byte over sockets: a clean rejection, or a closed connection where HTTP itself is
//! broken. The server never fails, stores nothing of it, and continues.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_core::Registry;
use everturn_server::{Limits, Server};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;

use crate::support::agents::parrot;
use crate::support::{Answer, Served};

const PATIENCE: Duration = Duration::from_mins(2);
const PATHS: [&str; 4] = [
    "/flows/echo",
    "/agents/parrot",
    "/agents/parrot/getSnapshot",
    "/agents/parrot/abort",
];

async fn served_with(limits: Limits) -> Served {
    let registry = Registry::new();
    registry
        .define_flow("echo", |input: Value| async move { Ok(input) })
        .unwrap();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    Served::start(Server::new(&registry).limits(limits)).await
}

async fn served() -> Served {
    served_with(Limits::default()).await
}

async fn connect(server: &Served) -> TcpStream {
    let address = server.base.trim_start_matches("http://");
    TcpStream::connect(address).await.unwrap()
}

/// Sends the pieces unchanged, closes the sending side, and reads the response.
async fn send<'a>(server: &Served, pieces: impl Iterator<Item = &'a [u8]>) -> String {
    exchange(server, pieces, AsyncWriteExt::shutdown).await
}

/// Sends the pieces of whole requests and reads the response. The sending side stays open, because a server
/// need not answer a client that closes it.
async fn ask<'a>(server: &Served, pieces: impl Iterator<Item = &'a [u8]>) -> String {
    exchange(server, pieces, AsyncWriteExt::flush).await
}

async fn exchange<'a>(
    server: &Served,
    pieces: impl Iterator<Item = &'a [u8]>,
    end: impl AsyncFnOnce(&mut OwnedWriteHalf) -> std::io::Result<()>,
) -> String {
    let (mut reader, mut writer) = connect(server).await.into_split();
    let writing = async {
        for piece in pieces {
            // A server may close the connection early.
            if writer.write_all(piece).await.is_err() {
                break;
            }
        }
        let _ = end(&mut writer).await;
    };
    let mut answer = Vec::new();
    let both = async { tokio::join!(writing, reader.read_to_end(&mut answer)) };
    let _ = tokio::time::timeout(PATIENCE, both)
        .await
        .expect("it is answered");
    String::from_utf8_lossy(&answer).into_owned()
}

async fn wire(server: &Served, bytes: &[u8]) -> String {
    send(server, std::iter::once(bytes)).await
}

fn status(answer: &str) -> Option<u16> {
    answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

#[track_caller]
fn assert_refused_or_closed(answer: &str, what: &str) {
    let is_refused = status(answer).is_some_and(|status| (400..500).contains(&status));
    assert!(answer.is_empty() || is_refused, "{what}: {answer}");
}

#[track_caller]
fn assert_still_serving(answer: &Answer) {
    assert_eq!(answer.result(), json!("still here"));
}

fn request(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_in_the_form_of_all_failures() {
    let server = served().await;
    let deep = |levels: usize| format!(r#"{{"data":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    let bodies: [(&str, Vec<u8>); 12] = [
        ("breaks off in an object", br#"{"data":{"a":"#.to_vec()),
        ("breaks off in a text", br#"{"data":"abc"#.to_vec()),
        ("breaks off in an escape", br#"{"data":"\u00"#.to_vec()),
        ("is not UTF-8", b"{\"data\":\"\xff\xfe\"}".to_vec()),
        ("has half a surrogate", br#"{"data":"\ud800"}"#.to_vec()),
        ("says data twice", br#"{"data":1,"data":2}"#.to_vec()),
        ("has a number beyond all bounds", br#"{"data":1e999999}"#.to_vec()),
        (
            "has a number of many digits",
            format!(r#"{{"data":{}}}"#, "9".repeat(100_000)).into_bytes(),
        ),
        ("has what is no number", br#"{"data":NaN}"#.to_vec()),
        ("is nested deeply", deep(10_000).into_bytes()),
        ("has zero bytes", b"{\"data\":\0\0\0}".to_vec()),
        ("goes on after its end", br#"{"data":1}{"data":2}"#.to_vec()),
    ];

    for accept in ["", "accept: text/event-stream\r\n"] {
        let headers = format!("{accept}content-type: application/json\r\nconnection: close\r\n");
        for path in PATHS {
            for (what, body) in &bodies {
                let answer = wire(&server, &request(path, &headers, body)).await;

                assert_eq!(status(&answer), Some(400), "{path} {what}: {answer}");
                assert!(answer.contains("INVALID_ARGUMENT"), "{path} {what}: {answer}");
            }
        }
    }
    assert_still_serving(&server.post(PATHS[0], &json!({"data": "still here"})).await);
}

#[tokio::test]
async fn a_content_type_that_is_not_json_is_refused() {
    let server = served().await;

    for content_type in [
        "",
        "content-type: \r\n",
        "content-type: text/xml\r\n",
        "content-type: multipart/form-data; boundary=x\r\n",
        "content-type: application/jsonp\r\n",
        "content-type: application/x-www-form-urlencoded, application/json\r\n",
        "content-type: \u{fc}\u{fc}\r\n",
    ] {
        let headers = format!("{content_type}connection: close\r\n");
        let answer = wire(&server, &request(PATHS[0], &headers, br#"{"data":1}"#)).await;

        assert_eq!(status(&answer), Some(415), "{content_type}: {answer}");
    }
}

#[tokio::test]
async fn framing_that_makes_no_sense_is_refused() {
    let server = served().await;
    let with = |headers: &str, body: &str| {
        let json = "content-type: application/json\r\nconnection: close";
        format!("POST /flows/echo HTTP/1.1\r\nhost: localhost\r\n{json}\r\n{headers}\r\n\r\n{body}")
    };
    let chunked = |body: &str| with("transfer-encoding: chunked", body);
    let requests = [
        with("content-length: -1", ""),
        with("content-length: 1, 2", "{}"),
        with("content-length: 2\r\ncontent-length: 3", "{}"),
        with("content-length: 99999999999999999999999", "{}"),
        with("content-length: 18446744073709551613", "{}"),
        with("content-length: 100", "{\"data\":1}"),
        with("transfer-encoding: gzip", "{}"),
        with("transfer-encoding: chunked, identity", "{}"),
        with("transfer-encoding: chunked\r\ncontent-length: 2", "{}"),
        chunked("zz\r\n{}\r\n0\r\n\r\n"),
        chunked("-1\r\n{}\r\n0\r\n\r\n"),
        chunked("ffffffffffffffffffff\r\n{}"),
        chunked("ffffffffffffff\r\n{}"),
        chunked("2\r\n{}{}{}\r\n0\r\n\r\n"),
        chunked("5\r\n{\"dat"),
        chunked(&format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(100_000))),
        chunked(&format!("2\r\n{{}}\r\n0\r\n{}\r\n", "x: y\r\n".repeat(100_000))),
    ];

    for request in requests {
        let what: String = request.chars().skip(90).take(120).collect();
        let answer = wire(&server, request.as_bytes()).await;

        assert_refused_or_closed(&answer, &what);
    }
    assert_still_serving(&server.post(PATHS[0], &json!({"data": "still here"})).await);
}

#[tokio::test]
async fn heads_that_make_no_sense_are_refused() {
    let server = served().await;
    let mut flood = String::from("POST /flows/echo HTTP/1.1\r\nhost: localhost\r\n");
    for n in 0..50_000 {
        write!(flood, "x-{n}: y\r\n").unwrap();
    }
    let requests = [
        flood + "\r\n",
        format!(
            "POST /{} HTTP/1.1\r\nhost: localhost\r\n\r\n",
            "x".repeat(200_000)
        ),
        format!("{} / HTTP/1.1\r\nhost: localhost\r\n\r\n", "X".repeat(100_000)),
        format!("POST / HTTP/1.1\r\n{}: x\r\n\r\n", "x".repeat(1_000_000)),
        "BREW /flows/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".into(),
        "post /flows/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".into(),
        "P(O)ST /flows/echo HTTP/1.1\r\nhost: localhost\r\n\r\n".into(),
        "POST flows/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".into(),
        "OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".into(),
        "CONNECT example.com:443 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".into(),
        "POST /flows/echo HTTP/1.1\r\nbad name: x\r\n\r\n".into(),
        "POST /flows/echo HTTP/1.1\r\nx: a\0b\r\n\r\n".into(),
        "POST /flows/echo HTTP/1.1\r\n: x\r\n\r\n".into(),
        "POST /flows/echo\r\n\r\n".into(),
        "POST /flows/echo HTTP/3.7\r\n\r\n".into(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        "\0".repeat(100_000),
        "GET /agents/parrot HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
            .into(),
    ];

    for request in requests {
        let what: String = request.chars().take(100).collect();
        let answer = wire(&server, request.as_bytes()).await;

        assert_refused_or_closed(&answer, &what);
    }
    assert_still_serving(&server.post(PATHS[0], &json!({"data": "still here"})).await);
}

#[tokio::test]
async fn garbage_after_a_good_request_does_not_reach_its_answer() {
    let server = served().await;
    let good = request(
        PATHS[0],
        "content-type: application/json\r\n",
        br#"{"data":"good"}"#,
    );

    let answer = wire(
        &server,
        &[&good[..], b"\x00\xff garbage\r\n\r\n", &good[..]].concat(),
    )
    .await;

    let (first, rest) = answer.split_once(r#"{"result":"good"}"#).unwrap();
    assert_eq!(status(first), Some(200), "{answer}");
    assert_refused_or_closed(rest, "the garbage");
}

#[tokio::test]
async fn slow_clients_delay_no_others_and_are_disconnected() {
    let time = Duration::from_millis(500);
    let server = served_with(Limits::default().header_time(time).body_time(time)).await;
    let half_a_head = b"POST /flows/echo HTTP/1.1\r\nhost: localhost\r\nx-sl";
    let half_a_body = request(
        PATHS[0],
        "content-type: application/json\r\n",
        br#"{"data":"late"}"#,
    );
    let half_a_body = &half_a_body[..half_a_body.len() - 3];

    let dawdling = (0..200).map(|n| {
        let begun = if n % 2 == 0 { &half_a_head[..] } else { half_a_body };
        let server = &server;
        async move {
            let mut stream = connect(server).await;
            stream.write_all(begun).await.unwrap();
            stream
        }
    });
    let dawdling = join_all(dawdling).await;
    assert_still_serving(&server.post(PATHS[0], &json!({"data": "still here"})).await);
    let endings = dawdling.into_iter().map(|mut stream| async move {
        let mut answer = Vec::new();
        // The operating system's report of the end does not matter.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    });
    let endings = tokio::time::timeout(PATIENCE, join_all(endings)).await.unwrap();

    for ending in endings {
        assert_refused_or_closed(&ending, "a client that dawdles");
    }
}

/// The peak memory of this process, if the operating system reports it.
fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[tokio::test]
async fn bodies_of_a_hundred_megabytes_are_refused_without_being_stored() {
    const PIECE: &[u8] = &[b' '; 64 * 1024];
    const PIECES: usize = 1600;
    let server = served().await;
    let announced = format!(
        "POST /flows/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        PIECE.len() * PIECES
    );
    let chunked = "POST /agents/parrot HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
                   transfer-encoding: chunked\r\n\r\n";
    let chunk = [b"10000\r\n", PIECE, b"\r\n"].concat();
    let before = peak_bytes();

    let whole = std::iter::once(announced.as_bytes()).chain(std::iter::repeat_n(PIECE, PIECES));
    let whole = ask(&server, whole).await;
    let in_chunks = std::iter::once(chunked.as_bytes())
        .chain(std::iter::repeat_n(&chunk[..], PIECES))
        .chain(std::iter::once(&b"0\r\n\r\n"[..]));
    let in_chunks = ask(&server, in_chunks).await;

    assert_eq!(status(&whole), Some(413), "{whole}");
    assert_eq!(status(&in_chunks), Some(413), "{in_chunks}");
    match (before, peak_bytes()) {
        (Some(before), Some(after)) => {
            // The other tests of this file share the process.
            let grown = (after - before) / (1024 * 1024);
            assert!(grown < 48, "grown by {grown} MiB");
        }
        _ => println!("skipped: this system does not say how much memory a process has"),
    }
    assert_still_serving(&server.post(PATHS[0], &json!({"data": "still here"})).await);
}
