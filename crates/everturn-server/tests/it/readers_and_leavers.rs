//! Clients that leave, and clients that read slowly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::store::MemoryStore;
use everturn_core::{Context, Emitter, Registry};
use everturn_testkit::{eventually, in_time};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::Served;
use crate::support::agents::{patient, says};

#[tokio::test]
async fn a_reader_that_disconnects_ends_the_turn() {
    let registry = Registry::new();
    let agent = patient(
        &registry,
        Some(Arc::new(MemoryStore::new())),
        &CancellationToken::new(),
    );
    let server = Served::of(&registry).await;

    let stream = server
        .request("/agents/patient", &says("hi"))
        .header("accept", "text/event-stream");
    let mut stream = stream.send().await.unwrap();
    stream.chunk().await.unwrap().unwrap();
    assert_eq!(agent.invocations(), 1);
    drop(stream);

    in_time("the turn has ended", agent.idle()).await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_ends_the_call_it_waited_for() {
    let registry = Registry::new();
    let (started, over) = (CancellationToken::new(), CancellationToken::new());
    let signals = (started.clone(), over.clone());
    let waiting = move |(): ()| {
        let (begun, ended) = signals.clone();
        async move {
            let _ended = ended.drop_guard();
            begun.cancel();
            std::future::pending::<()>().await;
            Ok(Context::current().is_cancelled())
        }
    };
    registry.define_flow("waiting", waiting).unwrap();
    let server = Served::of(&registry).await;

    let call = tokio::spawn(server.request("/flows/waiting", &json!({})).send());
    started.cancelled().await;
    call.abort();

    in_time("the call has ended", over.cancelled()).await;
}

#[tokio::test]
async fn a_detached_turn_survives_a_client_that_disconnects() {
    let registry = Registry::new();
    let gate = CancellationToken::new();
    patient(&registry, Some(Arc::new(MemoryStore::new())), &gate);
    let server = Served::of(&registry).await;
    let mut body = says("hi");
    body["data"]["detach"] = true.into();

    let output = server.post("/agents/patient", &body).await.result();
    gate.cancel();

    let id = json!({ "data": { "snapshotId": output["snapshotId"] } });
    eventually("the run is completed", async || {
        server.post("/agents/patient/getSnapshot", &id).await.result()["status"] == "completed"
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_stops_the_action_instead_of_filling_memory() {
    let registry = Registry::new();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let chatty = move |(): (), emitter: Emitter<String>| {
        let count = Arc::clone(&count);
        async move {
            loop {
                emitter.send("x".repeat(64 * 1024)).await?;
                count.fetch_add(1, Ordering::SeqCst);
            }
            #[expect(unreachable_code, reason = "says what the flow would return")]
            Ok(())
        }
    };
    registry.define_streaming_flow("chatty", chatty).unwrap();
    let server = Served::of(&registry).await;

    let stream = server
        .request("/flows/chatty", &json!({}))
        .header("accept", "text/event-stream");
    let stream = stream.send().await.unwrap();
    // An action that is not stopped sends a chunk each time.
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }

    // Data in transit is in the sockets' buffers, which the operating system bounds.
    assert!(sent.load(Ordering::SeqCst) < 1000, "{sent:?}");
    drop(stream);
}
