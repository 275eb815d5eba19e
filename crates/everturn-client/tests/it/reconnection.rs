//! A stream that a server keeps survives its connection; a turn is never sent twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_client::{RemoteAgent, RemoteFlow, Retries, STREAM_BROKEN};
use everturn_core::{Result, Status};
use everturn_testkit::eventually;
use serde_json::{Value, json};

use crate::support::{Loopback, Reply, impatient, impatient_builder};

/// A stream of these events, each with an id.
fn numbered(events: &[(u32, Value)]) -> String {
    let event = |(id, event): &(u32, Value)| format!("id: {id}\ndata: {event}\n\n");
    events.iter().map(event).collect::<Vec<_>>().concat()
}

fn plain(events: &[Value]) -> String {
    let event = |event: &Value| format!("data: {event}\n\n");
    events.iter().map(event).collect::<Vec<_>>().concat()
}

fn chunk(n: u32) -> Value {
    json!({ "message": n })
}

fn result() -> Value {
    json!({ "result": "done" })
}

async fn drained(flow: &RemoteFlow<Value, String, u32>) -> (Vec<u32>, Result<String>) {
    let mut stream = flow.stream(json!("in")).unwrap();
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.next().await {
        chunks.push(chunk);
    }
    (chunks, stream.output().await)
}

#[tokio::test]
async fn a_server_with_numbered_events_continues_after_the_last_one_received() {
    let server = Loopback::start([
        Reply::stream(numbered(&[(1, chunk(1)), (2, chunk(2))]))
            .header("x-genkit-stream-id", "stream-1")
            .broken(),
        Reply::stream(numbered(&[(3, chunk(3))])).broken(),
        Reply::stream(numbered(&[(4, result())])),
    ])
    .await;
    let flow = impatient().flow(&server.url).unwrap();

    let (chunks, output) = drained(&flow).await;

    assert_eq!(chunks, [1, 2, 3]);
    assert_eq!(output.unwrap(), "done");
    let asked = server.received();
    let ids: Vec<_> = asked
        .iter()
        .map(|request| request.header("x-genkit-stream-id"))
        .collect();
    let last: Vec<_> = asked
        .iter()
        .map(|request| request.header("last-event-id"))
        .collect();
    assert_eq!(ids, [None, Some("stream-1"), Some("stream-1")]);
    assert_eq!(last, [None, Some("2"), Some("3")]);
    assert!(
        asked
            .iter()
            .all(|request| request.header("x-everturn-event-ids") == Some("1"))
    );
}

#[tokio::test]
async fn a_server_that_starts_over_is_listened_to_from_where_it_broke_off() {
    let server = Loopback::start([
        Reply::new(200, "text/plain", plain(&[chunk(1), chunk(2)]))
            .header("x-genkit-stream-id", "stream-1")
            .broken(),
        // Disconnects before the first new event.
        Reply::new(200, "text/plain", plain(&[chunk(1)])).broken(),
        Reply::new(
            200,
            "text/plain",
            plain(&[chunk(1), chunk(2), chunk(3), result()]),
        ),
    ])
    .await;
    let flow = impatient().flow(&server.url).unwrap();

    let (chunks, output) = drained(&flow).await;

    assert_eq!(chunks, [1, 2, 3]);
    assert_eq!(output.unwrap(), "done");
    assert_eq!(server.received().len(), 3);
}

#[tokio::test]
async fn half_an_event_is_not_an_event() {
    let half = format!("data: {}\n\ndata: {{\"mess", chunk(1));
    let server = Loopback::start([
        // The connection breaks once in the middle of the reply and once at its end.
        Reply::stream(&half).header("x-genkit-stream-id", "s").broken(),
        Reply::stream(&half),
        Reply::stream(plain(&[chunk(1), chunk(2), result()])),
    ])
    .await;
    let flow = impatient().flow(&server.url).unwrap();

    let (chunks, output) = drained(&flow).await;

    assert_eq!(chunks, [1, 2]);
    assert_eq!(output.unwrap(), "done");
}

#[tokio::test]
async fn a_stream_that_is_not_kept_is_not_restarted() {
    for broken in [
        Reply::stream(plain(&[chunk(1)])).broken(),
        Reply::stream(plain(&[chunk(1)])),
        Reply::stream("").broken(),
    ] {
        let server = Loopback::start([broken]).await;
        let flow = impatient().flow(&server.url).unwrap();

        let (_, output) = drained(&flow).await;

        let error = output.unwrap_err();
        assert!(error.is(STREAM_BROKEN), "{error:?}");
        assert_eq!(error.status(), Status::Unavailable);
        assert_eq!(server.received().len(), 1);
    }
}

#[tokio::test]
async fn a_stream_that_is_forgotten_is_not_found() {
    let server = Loopback::start([
        Reply::stream(plain(&[chunk(1)]))
            .header("x-genkit-stream-id", "s")
            .broken(),
        Reply::empty(204),
    ])
    .await;
    let flow = impatient().flow(&server.url).unwrap();

    let (chunks, output) = drained(&flow).await;

    assert_eq!(chunks, [1]);
    assert_eq!(output.unwrap_err().status(), Status::NotFound);
}

#[tokio::test]
async fn a_server_that_comes_back_is_waited_for() {
    let server = Loopback::start([
        Reply::stream(plain(&[chunk(1)]))
            .header("x-genkit-stream-id", "s")
            .broken(),
        Reply::empty(503),
        Reply::new(502, "text/html", "<p>starting</p>"),
        Reply::stream(plain(&[chunk(1), result()])),
    ])
    .await;
    let flow = impatient().flow(&server.url).unwrap();

    let (chunks, output) = drained(&flow).await;

    assert_eq!(chunks, [1]);
    assert_eq!(output.unwrap(), "done");
}

#[tokio::test]
async fn attempts_without_any_progress_end() {
    let lost = Reply::stream("").broken();
    let server = Loopback::start([
        Reply::stream(plain(&[chunk(1)]))
            .header("x-genkit-stream-id", "s")
            .broken(),
        lost.clone(),
        lost.clone(),
        lost.clone(),
        lost,
    ])
    .await;
    let flow = impatient().flow(&server.url).unwrap();

    let (chunks, output) = drained(&flow).await;

    assert_eq!(chunks, [1]);
    assert_eq!(output.unwrap_err().status(), Status::Unavailable);
    assert_eq!(server.received().len(), 4, "the first time and three more");
}

#[tokio::test]
async fn a_refused_request_is_not_retried() {
    let server = Loopback::start([
        Reply::stream(plain(&[chunk(1)]))
            .header("x-genkit-stream-id", "s")
            .broken(),
        Reply::new(
            401,
            "application/json",
            r#"{"status":"UNAUTHENTICATED","message":"expired"}"#,
        ),
    ])
    .await;
    let flow = impatient().flow(&server.url).unwrap();

    let (_, output) = drained(&flow).await;

    assert_eq!(output.unwrap_err().status(), Status::Unauthenticated);
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn a_server_that_falls_silent_counts_as_lost() {
    let server = Loopback::start([
        Reply::stream(plain(&[chunk(1)]))
            .header("x-genkit-stream-id", "s")
            .silent(),
        Reply::stream(plain(&[chunk(1), chunk(2), result()])),
    ])
    .await;
    let client = impatient_builder()
        .silence(Duration::from_millis(200))
        .build()
        .unwrap();
    let flow = client.flow(&server.url).unwrap();

    let (chunks, output) = drained(&flow).await;

    assert_eq!(chunks, [1, 2]);
    assert_eq!(output.unwrap(), "done");
}

#[tokio::test]
async fn an_unanswered_turn_is_not_sent_again() {
    // Reads the request and closes the connection without a response. Requests are counted before the client
    // can observe it.
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/agent", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        use tokio::io::AsyncReadExt;
        while let Ok((mut connection, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let _ = connection.read(&mut [0; 4096]).await;
        }
    });
    let agent: RemoteAgent = impatient().agent(&url).unwrap();

    let error = agent.run_text("hi").await.unwrap_err();

    assert_eq!(error.status(), Status::Unavailable);
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_turn_that_was_not_sent_is_tried_again() {
    // The port is chosen before the listener exists.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("http://{}/flow", socket.local_addr().unwrap());
    let client = impatient_builder()
        .retries(Retries {
            attempts: 100,
            first_delay: Duration::from_millis(5),
            longest_delay: Duration::from_millis(5),
        })
        .build()
        .unwrap();
    let flow: RemoteFlow<Value, String, u32> = client.flow(&url).unwrap();

    let running = tokio::spawn(async move { flow.run(json!(1)).await });
    tokio::task::yield_now().await;
    let listener = socket.listen(8).unwrap();
    let (mut connection, _) = listener.accept().await.unwrap();
    {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let _ = connection.read(&mut [0; 4096]).await.unwrap();
        let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"result\":\"done\"}";
        connection.write_all(reply).await.unwrap();
    }

    assert_eq!(running.await.unwrap().unwrap(), "done");
}

#[tokio::test]
async fn a_stream_is_reattached_by_its_name() {
    let server = Loopback::start([
        Reply::stream(plain(&[chunk(1), result()])).header("x-genkit-stream-id", "s-9"),
        Reply::stream(plain(&[chunk(1), result()])),
        Reply::empty(204),
    ])
    .await;
    let flow: RemoteFlow<Value, String, u32> = impatient().flow(&server.url).unwrap();

    let mut first = flow.stream(json!("in")).unwrap();
    let id = first.stream_id().await.unwrap();
    drop(first);
    let mut again = flow.reattach(&id);
    let chunk = again.next().await;
    let output = again.output().await.unwrap();
    let unknown = flow.reattach("unknown").output().await;

    assert_eq!((chunk, output.as_str()), (Some(1), "done"));
    assert_eq!(unknown.unwrap_err().status(), Status::NotFound);
    assert_eq!(server.received()[1].header("x-genkit-stream-id"), Some("s-9"));
}

#[tokio::test]
async fn a_turn_that_is_dropped_is_stopped_where_its_stream_is_kept() {
    let server = Loopback::start([
        Reply::stream("data: {\"message\":{\"turnEnd\":{}}}\n\n")
            .header("x-genkit-stream-id", "s-3")
            .silent(),
        Reply::empty(204),
    ])
    .await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    let mut turn = chat.send("hi").await.unwrap();
    turn.next().await.unwrap().unwrap();
    drop(turn);

    eventually("the stream is stopped", async || server.received().len() == 2).await;
    let stop = &server.received()[1];
    assert_eq!(
        (stop.method.as_str(), stop.header("x-genkit-stream-id")),
        ("DELETE", Some("s-3"))
    );
}
