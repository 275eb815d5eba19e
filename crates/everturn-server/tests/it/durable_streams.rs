//! Streams that outlive their connection: read again, gone on with, stopped; after a restart too.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_core::stream_log::{MemoryStreamLog, Position, StreamEvent, StreamKey, StreamLog};
use everturn_core::{Emitter, Error, Registry, Result};
use everturn_server::{AfterGrace, Grace, Limits, Principal, Provided, Server, context_fn};
use everturn_sqlite::SqliteStreamLog;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::support::agents::{parrot, says, says_in};
use crate::support::{Answer, Served, answer};

const COUNT: &str = "/flows/count";

/// A flow that counts to its input, each number with permission of the test, and that reports its end.
#[derive(Clone)]
struct Counting {
    registry: Registry,
    leave: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    over: CancellationToken,
}

impl Counting {
    fn new() -> Self {
        let this = Self {
            registry: Registry::new(),
            leave: Arc::new(Semaphore::new(0)),
            calls: Arc::new(Semaphore::new(0)),
            over: CancellationToken::new(),
        };
        let (leave, calls, over) = (
            Arc::clone(&this.leave),
            Arc::clone(&this.calls),
            this.over.clone(),
        );
        let count = move |to: u32, emitter: Emitter<Value>| {
            let (leave, over) = (Arc::clone(&leave), over.clone());
            calls.add_permits(1);
            async move {
                let _over = over.drop_guard();
                for n in 1..=to {
                    leave.acquire().await?.forget();
                    emitter
                        .send(json!({"n": n, "half": f64::from(n) / 2.0, "text": "a\nb"}))
                        .await?;
                }
                if to == 0 {
                    return Err(Error::internal("row 17").into());
                }
                Ok(format!("counted to {to}"))
            }
        };
        this.registry.define_streaming_flow("count", count).unwrap();
        this
    }

    fn allow(&self, count: usize) {
        self.leave.add_permits(count);
    }

    async fn served_with(&self, log: impl StreamLog) -> Served {
        Served::start(self.server().stream_log(log)).await
    }

    /// A server that identifies callers by a header.
    fn server(&self) -> Server {
        Server::new(&self.registry).context(context_fn(|request| {
            let name = request.header("x-name").unwrap_or("ann");
            Ok(Provided::new().with_principal(Principal::new(name)))
        }))
    }
}

fn streamed(server: &Served, to: u32) -> reqwest::RequestBuilder {
    server
        .request(COUNT, &json!({ "data": to }))
        .header("accept", "text/event-stream")
}

/// A stream again, after the event of that id if there is one.
async fn again(server: &Served, id: &str, after: Option<usize>) -> Answer {
    let mut request = streamed(server, 99).header("x-genkit-stream-id", id);
    if let Some(after) = after {
        request = request.header("last-event-id", after.to_string());
    }
    answer(request).await
}

fn stream_id(answer: &Answer) -> String {
    answer.header("x-genkit-stream-id").unwrap().to_owned()
}

/// The events of a stream, as they were written.
fn frames(body: &str) -> Vec<&str> {
    body.split_inclusive("\n\n").collect()
}

/// A client that has read this many events and holds the connection.
async fn reads(server: &Served, to: u32, count: usize) -> (reqwest::Response, String, String) {
    let mut response = streamed(server, to).send().await.unwrap();
    let id = response.headers()["x-genkit-stream-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let mut read = String::new();
    while frames(&read).len() < count {
        let bytes = response.chunk().await.unwrap().unwrap();
        read.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    (response, id, read)
}

#[tokio::test]
async fn a_call_continues_when_its_stream_is_too_large_to_be_recorded() {
    let counting = Counting::new();
    let log = MemoryStreamLog::options().max_stream_bytes(500).build();
    let server = counting.served_with(log).await;
    counting.allow(10);

    let first = answer(streamed(&server, 10)).await;
    counting.over.cancelled().await;
    let replayed = again(&server, &stream_id(&first), None).await;

    let (seen, kept) = (frames(&first.body), frames(&replayed.body));
    assert_eq!(
        seen.len(),
        11,
        "the client that made the call gets all of it: {seen:?}"
    );
    assert!(seen.last().unwrap().contains("result"), "{seen:?}");
    let (end, kept) = kept.split_last().unwrap();
    assert!(end.contains("RESOURCE_EXHAUSTED"), "{end}");
    assert!(!kept.is_empty() && kept.len() < 10, "{kept:?}");
    assert_eq!(kept, &seen[..kept.len()]);
    assert_eq!(counting.leave.available_permits(), 0, "it counted to the end");
}

#[tokio::test]
async fn a_stream_cut_anywhere_and_reattached_gives_the_same_bytes() {
    let counting = Counting::new();
    counting.allow(6);
    let server = counting.served_with(MemoryStreamLog::new()).await;

    let whole = answer(streamed(&server, 6).header("x-everturn-event-ids", "1")).await;

    let (id, whole) = (stream_id(&whole), frames(&whole.body));
    assert_eq!(whole.len(), 7);
    assert_eq!(
        whole[1],
        "id: 2\ndata: {\"message\":{\"n\":2,\"half\":1.0,\"text\":\"a\\nb\"}}\n\n"
    );
    assert_eq!(whole[6], "id: 7\ndata: {\"result\":\"counted to 6\"}\n\n");
    for seen in 0..=6 {
        let rest = again(&server, &id, Some(seen)).await;
        assert_eq!(rest.status, 200);
        assert_eq!([whole[..seen].concat(), rest.body].concat(), whole.concat());
    }
    assert_eq!(
        again(&server, &id, Some(99)).await.body,
        whole[6],
        "the end is always told"
    );
    assert_eq!(counting.calls.available_permits(), 1, "nothing ran twice");
}

#[tokio::test]
async fn without_being_asked_no_event_has_an_id() {
    let counting = Counting::new();
    counting.allow(2);
    let server = counting.served_with(MemoryStreamLog::new()).await;

    let first = answer(streamed(&server, 2)).await;
    let again = again(&server, &stream_id(&first), None).await;

    assert!(!first.body.contains("id:"), "{}", first.body);
    assert_eq!(again.body, first.body);
    assert_eq!(first.header("content-type"), Some("text/event-stream"));
    assert_eq!(first.events()[2], json!({"result": "counted to 2"}));
}

#[tokio::test]
async fn a_disconnected_client_stops_nothing_and_continues_live_after_it_reconnects() {
    let counting = Counting::new();
    counting.allow(2);
    let server = counting.served_with(MemoryStreamLog::new()).await;
    let (response, id, read) = reads(&server, 5, 2).await;

    drop(response);
    let mut back = streamed(&server, 5)
        .header("x-genkit-stream-id", &id)
        .send()
        .await
        .unwrap();
    let mut seen = String::new();
    while frames(&seen).len() < 2 {
        seen.push_str(std::str::from_utf8(&back.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert_eq!(seen, read, "what was there before");
    counting.allow(3);
    seen.push_str(&back.text().await.unwrap());

    assert_eq!(frames(&seen).len(), 6);
    assert!(seen.ends_with("data: {\"result\":\"counted to 5\"}\n\n"));
}

#[tokio::test]
async fn a_stop_ends_the_work_and_the_stream() {
    let counting = Counting::new();
    counting.allow(1);
    let server = counting.served_with(MemoryStreamLog::new()).await;
    let (response, id, _) = reads(&server, 5, 1).await;

    let stop = server
        .client
        .delete(server.url(COUNT))
        .header("x-genkit-stream-id", &id);
    let stopped = answer(stop).await;

    assert_eq!((stopped.status, stopped.body.as_str()), (204, ""));
    counting.over.cancelled().await;
    let rest = response.text().await.unwrap();
    assert_eq!(
        rest,
        "data: {\"error\":{\"status\":\"CANCELLED\",\"message\":\"the stream was stopped\"}}\n\n"
    );
    assert!(again(&server, &id, Some(1)).await.body.contains("CANCELLED"));
}

#[tokio::test]
async fn another_principals_stream_is_indistinguishable_from_a_missing_one() {
    let counting = Counting::new();
    counting.allow(1);
    let server = counting.served_with(MemoryStreamLog::new()).await;
    let id = stream_id(&answer(streamed(&server, 1)).await);

    for (name, id) in [("bob", id.as_str()), ("ann", "3f0c7b1e"), ("bob", "3f0c7b1e")] {
        let read = streamed(&server, 1)
            .header("x-genkit-stream-id", id)
            .header("x-name", name);
        let read = answer(read).await;
        assert_eq!((read.status, read.body.as_str()), (204, ""));
        let stop = server.client.delete(server.url(COUNT));
        let stop = answer(stop.header("x-genkit-stream-id", id).header("x-name", name)).await;
        stop.assert_failure(404, "NOT_FOUND");
        assert_eq!(stop.json()["message"], "stream not found");
    }
    assert_eq!(again(&server, &id, None).await.status, 200, "its owner reads it");
}

#[tokio::test]
async fn reading_a_stream_again_is_a_call_for_as_long_as_it_is_read() {
    let counting = Counting::new();
    counting.allow(1);
    let limits = Limits::default().calls_per_principal(2);
    let server = counting.server().limits(limits);
    let server = Served::start(server.stream_log(MemoryStreamLog::new())).await;
    let (_call, id, _) = reads(&server, 2, 1).await;
    let read_again = || streamed(&server, 99).header("x-genkit-stream-id", &id).send();

    let under_way = read_again().await.unwrap();
    let one_too_many = read_again().await.unwrap();

    assert_eq!(under_way.status(), 200);
    assert_eq!(one_too_many.status(), 429);
}

#[tokio::test]
async fn an_error_is_replayed_without_its_private_text() {
    let counting = Counting::new();
    let server = counting.served_with(MemoryStreamLog::new()).await;

    let first = answer(streamed(&server, 0)).await;
    let again = again(&server, &stream_id(&first), None).await;

    assert_eq!(
        first.events(),
        [json!({"error": {"status": "INTERNAL", "message": "internal error"}})]
    );
    assert_eq!(again.body, first.body);
}

#[tokio::test]
async fn a_request_that_cannot_be_understood_runs_nothing() {
    let counting = Counting::new();
    let server = counting.served_with(MemoryStreamLog::new()).await;

    let lost = answer(streamed(&server, 1).header("last-event-id", "3")).await;
    let wrong = answer(
        streamed(&server, 1)
            .header("x-genkit-stream-id", "x")
            .header("last-event-id", "?"),
    )
    .await;
    let nothing = answer(server.client.delete(server.url(COUNT))).await;

    for refused in [lost, wrong, nothing] {
        refused.assert_failure(400, "INVALID_ARGUMENT");
    }
    assert_eq!(counting.calls.available_permits(), 0);
}

#[tokio::test]
async fn a_server_without_a_log_knows_no_stream_and_runs_nothing_for_one() {
    let counting = Counting::new();
    counting.allow(1);
    let server = Served::start(counting.server()).await;

    let first = answer(streamed(&server, 1)).await;
    let again = again(&server, "3f0c7b1e", None).await;

    assert_eq!(first.header("x-genkit-stream-id"), None);
    assert_eq!(again.status, 204);
    assert_eq!(counting.calls.available_permits(), 1);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nothing() {
    let registry = Registry::new();
    let over = CancellationToken::new();
    let finished = over.clone();
    let flood = move |count: u32, emitter: Emitter<String>| {
        let finished = finished.clone();
        async move {
            for _ in 0..count {
                emitter.send("x".repeat(10_000)).await?;
            }
            finished.cancel();
            Ok(())
        }
    };
    registry.define_streaming_flow("flood", flood).unwrap();
    let server = Served::start(Server::new(&registry).stream_log(MemoryStreamLog::new())).await;

    let request = server.request("/flows/flood", &json!({"data": 2_000}));
    let response = request
        .header("accept", "text/event-stream")
        .send()
        .await
        .unwrap();
    over.cancelled().await;

    let body = response.text().await.unwrap();
    assert_eq!(frames(&body).len(), 2_001);
}

#[tokio::test]
async fn a_server_that_ends_finishes_streams_without_readers() {
    let counting = Counting::new();
    counting.allow(1);
    let log = MemoryStreamLog::new();
    let mut server = counting.served_with(log.clone()).await;
    let (response, id, _) = reads(&server, 3, 1).await;
    drop(response);

    server.handle.shut_down();
    counting.allow(2);
    server.ended().await;

    let scope = Principal::new("ann").scope();
    let key = StreamKey::new(format!("{}/flow/count", scope.as_str()), id);
    let entries = log.read(&key, Position::new(3)).await.unwrap();
    let events: Vec<_> = entries.map(Result::unwrap).collect().await;
    assert!(matches!(events[0].event, StreamEvent::Done(_)), "{events:?}");
}

#[tokio::test]
async fn an_agents_turns_are_recorded_like_any_stream_including_rejected_ones() {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    let server = Served::start(Server::new(&registry).stream_log(MemoryStreamLog::new())).await;
    let path = "/agents/parrot";

    let turn = server.stream(path, &says("leek soup")).await;
    let refused = says_in("more", &json!({ "snapshotId": "missing" }));
    let refused = server.stream(path, &refused).await;

    assert_eq!(refused.status, 200);
    assert_eq!(refused.events()[0]["error"]["status"], "NOT_FOUND");
    for first in [turn, refused] {
        let id = stream_id(&first);
        let again = server.request(path, &json!({})).header("x-genkit-stream-id", id);
        let again = answer(again.header("accept", "text/event-stream")).await;
        assert_eq!(again.body, first.body);
    }
}

async fn sqlite(path: &Path) -> SqliteStreamLog {
    SqliteStreamLog::open(path).await.unwrap()
}

#[tokio::test]
async fn a_restarted_server_replays_what_was_written_and_reports_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("streams.db");
    let counting = Counting::new();
    let impatient = Grace {
        period: Duration::ZERO,
        then: AfterGrace::Cancel,
    };
    let before = counting.server().grace(impatient).stream_log(sqlite(&path).await);
    let mut before = Served::start(before).await;
    counting.allow(3);
    let finished = answer(streamed(&before, 3)).await;
    counting.allow(2);
    let (response, broken, read) = reads(&before, 5, 2).await;

    before.handle.shut_down();
    before.ended().await;
    drop((response, before));
    let after = counting.served_with(sqlite(&path).await).await;

    assert_eq!(
        again(&after, &stream_id(&finished), None).await.body,
        finished.body
    );
    let broken = again(&after, &broken, None).await;
    let (chunks, end) = broken.body.split_at(read.len());
    assert_eq!(chunks, read);
    assert!(end.contains("\"UNAVAILABLE\""), "{end}");
}

#[tokio::test]
async fn a_stream_is_read_and_stopped_through_another_server_on_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("streams.db");
    let counting = Counting::new();
    let one = counting.served_with(sqlite(&path).await).await;
    let two = counting.served_with(sqlite(&path).await).await;
    counting.allow(2);
    let (response, id, read) = reads(&one, 5, 2).await;

    let mut elsewhere = streamed(&two, 5)
        .header("x-genkit-stream-id", &id)
        .send()
        .await
        .unwrap();
    let mut seen = String::new();
    while frames(&seen).len() < 2 {
        seen.push_str(std::str::from_utf8(&elsewhere.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert_eq!(seen, read);
    let stop = two
        .client
        .delete(two.url(COUNT))
        .header("x-genkit-stream-id", &id);
    assert_eq!(answer(stop).await.status, 204);

    counting.over.cancelled().await;
    let (near, far) = (response.text().await.unwrap(), elsewhere.text().await.unwrap());
    assert_eq!(near, far);
    assert!(near.contains("CANCELLED"), "{near}");
}
