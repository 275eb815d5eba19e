//! The memory that clients can occupy is bounded: lists, unread responses, recorded streams.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentSession, SnapshotStatus, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_core::stream_log::MemoryStreamLog;
use everturn_core::{Emitter, Registry};
use everturn_server::{BearerTokens, Limits, Server};
use everturn_testkit::{eventually, in_time};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::support::agents::{parrot, patient, says};
use crate::support::{Answer, Served, answer};

const MEGABYTE: usize = 1024 * 1024;

#[tokio::test]
async fn a_request_with_too_many_answers_is_refused_with_the_limit_and_how_to_raise_it() {
    let registry = Registry::new();
    parrot(&registry, None);
    let server = Served::of(&registry).await;
    let restart = json!({ "toolRequest": { "name": "pay", "ref": "1", "input": {} } });

    let resume = json!({ "data": { "resume": { "restart": vec![restart; 1_001] } } });
    let messages = vec![json!({ "role": "user", "content": [{ "text": "hi" }] }); 10_001];
    let mut state = says("hi");
    state["init"] = json!({ "state": { "messages": messages } });
    let refusals = [
        server.post("/agents/parrot", &resume).await,
        server.post("/agents/parrot", &state).await,
    ];

    for (refusal, limit) in refusals.iter().zip(["Limits::answers", "Limits::messages"]) {
        refusal.assert_failure(400, "INVALID_ARGUMENT");
        assert!(refusal.body.contains(limit), "{refusal:?}");
    }
}

/// A flow that answers with a text of so many megabytes.
fn large(registry: &Registry) {
    registry
        .define_flow("large", |megabytes: usize| async move {
            Ok("x".repeat(megabytes * MEGABYTE))
        })
        .unwrap();
}

/// Asks for a large answer and reads nothing of it but the head.
async fn unread(server: &Served, token: &str, megabytes: usize) -> reqwest::Response {
    let request = server.request("/flows/large", &json!({ "data": megabytes }));
    request.bearer_auth(token).send().await.unwrap()
}

fn two_callers() -> BearerTokens {
    BearerTokens::new([("alice", "a"), ("bob", "b")])
}

#[tokio::test]
async fn a_call_is_active_until_the_last_byte_of_its_response_is_sent() {
    let registry = Registry::new();
    large(&registry);
    let limits = Limits::default().calls_per_principal(1);
    let server = Served::start(Server::new(&registry).context(two_callers()).limits(limits)).await;

    let first = unread(&server, "a", 40).await;
    let second = unread(&server, "a", 1).await;
    let other = unread(&server, "b", 1).await;
    assert_eq!(
        [first.status(), second.status(), other.status()].map(|status| status.as_u16()),
        [200, 429, 200]
    );

    assert_eq!(
        first.text().await.unwrap().len(),
        40 * MEGABYTE + r#"{"result":""}"#.len()
    );
    assert_eq!(unread(&server, "a", 1).await.status(), 200);
}

#[tokio::test]
async fn a_caller_has_no_more_bytes_in_flight_than_it_may() {
    let registry = Registry::new();
    large(&registry);
    // Nobody is given up before the second request is there, also on a busy machine.
    let limits = Limits::default()
        .bytes_per_caller(48 * MEGABYTE)
        .write_time(Duration::from_mins(5));
    let server = Served::start(Server::new(&registry).context(two_callers()).limits(limits)).await;

    let held = unread(&server, "a", 40).await;
    let refused = unread(&server, "a", 30).await;
    let other = unread(&server, "b", 30).await;

    assert_eq!(
        [held.status(), refused.status(), other.status()].map(|status| status.as_u16()),
        [200, 429, 200]
    );
    let message = refused.text().await.unwrap();
    assert!(message.contains("Limits::bytes_per_caller"), "{message}");
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_given_up_and_its_bytes_are_free_again() {
    let registry = Registry::new();
    large(&registry);
    let limits = Limits::default()
        .bytes_per_caller(48 * MEGABYTE)
        .write_time(Duration::from_secs(1));
    let server = Served::start(Server::new(&registry).context(two_callers()).limits(limits)).await;

    let _held = unread(&server, "a", 40).await;
    eventually("the bytes are free", async || {
        unread(&server, "a", 30).await.status() == 200
    })
    .await;
}

/// A flow that streams so many chunks of a hundred kilobytes.
fn streaming(registry: &Registry) {
    let flow = |chunks: usize, emitter: Emitter<String>| async move {
        for _ in 0..chunks {
            emitter.send("x".repeat(100_000)).await?;
        }
        Ok(chunks)
    };
    registry.define_streaming_flow("streaming", flow).unwrap();
}

/// The number of chunks in a streamed answer that ended with its output.
fn chunks(answer: &Answer) -> usize {
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut events = answer.events();
    let end = events.pop().unwrap();
    assert!(end.get("result").is_some(), "{end}");
    events.len()
}

#[tokio::test]
async fn a_stream_that_outgrows_the_log_continues_for_its_client() {
    let (registry, gate) = (Registry::new(), CancellationToken::new());
    streaming(&registry);
    let held = gate.clone();
    let noisy = move |(): (), emitter: Emitter<String>| {
        let gate = held.clone();
        async move {
            emitter.send("x".repeat(900_000)).await?;
            gate.cancelled().await;
            Ok(())
        }
    };
    registry.define_streaming_flow("noisy", noisy).unwrap();
    let log = MemoryStreamLog::options()
        .max_bytes(1_000_000)
        .max_owner_bytes(1_000_000);
    let server = Served::start(Server::new(&registry).stream_log(log.build())).await;
    let stream = server
        .request("/flows/noisy", &json!({}))
        .header("accept", "text/event-stream");
    let mut noisy = stream.send().await.unwrap();
    noisy.chunk().await.unwrap().unwrap();

    // The log has room for its beginning, and not for its end: it is not cut off.
    let cut = server.stream("/flows/streaming", &json!({ "data": 20 })).await;

    assert_eq!(chunks(&cut), 20);
    let metrics = server.get("/metrics").await.body;
    let line = r#"everturn_streams_not_kept_total{route="/flows/streaming",kind="flow"} 1"#;
    assert!(metrics.lines().any(|known| known == line), "{metrics}");
    gate.cancel();
}

#[tokio::test]
async fn a_stream_that_the_log_has_no_room_for_is_marked_and_complete() {
    let registry = Registry::new();
    streaming(&registry);
    let log = MemoryStreamLog::options().max_bytes(16).build();
    let server = Served::start(Server::new(&registry).stream_log(log)).await;

    let unkept = server.stream("/flows/streaming", &json!({ "data": 5 })).await;

    assert_eq!(chunks(&unkept), 5);
    assert_eq!(unkept.header("x-everturn-stream-kept"), Some("no"));
    assert_eq!(unkept.header("x-genkit-stream-id"), None);
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains("everturn_streams_not_kept_total"), "{metrics}");
}

#[tokio::test]
async fn a_noisy_caller_does_not_take_the_room_of_others_in_the_stream_log() {
    let registry = Registry::new();
    streaming(&registry);
    let log = MemoryStreamLog::options()
        .max_bytes(4_000_000)
        .max_owner_bytes(1_000_000)
        .build();
    let server = Served::start(Server::new(&registry).context(two_callers()).stream_log(log)).await;
    let stream = async |token: &str, count: usize| {
        let request = server.request("/flows/streaming", &json!({ "data": count }));
        answer(request.bearer_auth(token).header("accept", "text/event-stream")).await
    };
    let again = async |token: &str, first: &Answer| {
        let id = first.header("x-genkit-stream-id").unwrap();
        let request = server
            .request("/flows/streaming", &json!({}))
            .header("x-genkit-stream-id", id);
        answer(request.bearer_auth(token).header("accept", "text/event-stream")).await
    };

    let quiet = stream("b", 5).await;
    for _ in 0..6 {
        assert_eq!(chunks(&stream("a", 40).await), 40);
    }

    assert_eq!(again("b", &quiet).await.body, quiet.body);
}

#[tokio::test]
async fn a_loser_across_processes_gets_409() {
    // Servers with stores behind different pointers know nothing of each other, like two processes.
    let (shared, gate) = (MemoryStore::new(), CancellationToken::new());
    let (slow, quick) = (Registry::new(), Registry::new());
    let (begun, free) = (Arc::new(Semaphore::new(0)), gate.clone());
    let begins = Arc::clone(&begun);
    let patient = custom_agent(&slow, "patient", move |session: AgentSession| {
        let (begins, free) = (Arc::clone(&begins), free.clone());
        async move {
            let turns = session.run(move |turn| {
                let (begins, free) = (Arc::clone(&begins), free.clone());
                async move {
                    begins.add_permits(1);
                    free.cancelled().await;
                    turn.add_message(Message::model("done"));
                    Ok(FinishReason::Stop)
                }
            });
            turns.await?;
            Ok(session.result())
        }
    });
    patient.store(Arc::new(shared.clone())).define().unwrap();
    parrot(&quick, Some(Arc::new(shared)));
    let (slow, quick) = (Served::of(&slow).await, Served::of(&quick).await);
    let mut turn = says("hi");
    turn["init"] = json!({ "sessionId": "s" });

    let waiting = slow
        .request("/agents/patient", &turn)
        .header("accept", "text/event-stream");
    let streamed = tokio::spawn(answer(waiting));
    let plain = tokio::spawn(answer(slow.request("/agents/patient", &{
        let mut other = turn.clone();
        other["init"] = json!({ "sessionId": "t" });
        other
    })));
    let _both = begun.acquire_many(2).await.unwrap();
    for session in ["s", "t"] {
        let mut turn = turn.clone();
        turn["init"] = json!({ "sessionId": session });
        quick.post("/agents/parrot", &turn).await.result();
    }
    gate.cancel();

    plain.await.unwrap().assert_failure(409, "ABORTED");
    let last = streamed.await.unwrap().events().pop().unwrap();
    assert_eq!(last["error"]["status"], "ABORTED", "{last}");
}

#[tokio::test]
async fn resuming_a_session_after_an_abort_reports_which_snapshot_to_resume() {
    let (registry, gate) = (Registry::new(), CancellationToken::new());
    let store = Arc::new(MemoryStore::new());
    parrot(&registry, Some(Arc::clone(&store)));
    let patient = patient(&registry, Some(store), &gate);
    let server = Served::of(&registry).await;
    let in_session = |text: &str| {
        let mut turn = says(text);
        turn["init"] = json!({ "sessionId": "dinner" });
        turn
    };
    let done = server.post("/agents/parrot", &in_session("leeks")).await.result();
    let mut detach = in_session("and more");
    detach["data"]["detach"] = true.into();
    let run = server.post("/agents/patient", &detach).await.result()["snapshotId"].clone();
    let aborted = server
        .post("/agents/patient/abort", &json!({ "data": { "snapshotId": run } }))
        .await
        .result();
    assert_eq!(
        aborted["status"],
        serde_json::to_value(SnapshotStatus::Aborted).unwrap()
    );

    let refused = server.post("/agents/parrot", &in_session("hello?")).await;

    refused.assert_failure(400, "FAILED_PRECONDITION");
    let completed = done["snapshotId"].as_str().unwrap();
    assert!(
        refused.json()["message"].as_str().unwrap().contains(completed),
        "{refused:?}"
    );
    assert_eq!(
        refused.json()["details"]["resumableSnapshotId"],
        completed,
        "{refused:?}"
    );
    // The work that was aborted holds the session until it has ended.
    in_time("the aborted work has ended", patient.idle()).await;
    let mut resumed = says("hello?");
    resumed["init"] = json!({ "snapshotId": completed });
    server.post("/agents/parrot", &resumed).await.result();
}
