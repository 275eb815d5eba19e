//! A caller's background run continues after its process died, and stays the caller's.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, Clock};
use everturn_core::Registry;
use everturn_server::{AfterGrace, BearerTokens, Grace, Server, ServerHandle};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::support::agents::{detaches, says, waiting};
use crate::support::{Answer, Served, answer};

const RUN: &str = "/agents/planner";

/// An agent whose turns wait until the token is cancelled.
fn planner(registry: &Registry, store: &Arc<MemoryStore>, clock: Clock, gate: &CancellationToken) -> Agent {
    waiting(registry, "planner", gate, "planned")
        .store(Arc::clone(store))
        .clock(clock)
        .define()
        .unwrap()
}

fn server(registry: &Registry) -> Server {
    let grace = Grace {
        period: Duration::ZERO,
        then: AfterGrace::Detach,
    };
    Server::new(registry)
        .context(BearerTokens::new([
            ("alice", "alice-token"),
            ("bob", "bob-token"),
        ]))
        .grace(grace)
}

/// A process whose turns never end: a separate runtime, so that everything in it can be lost at once.
struct Process {
    runtime: Option<Runtime>,
    base: String,
    handle: ServerHandle,
}

impl Process {
    async fn start(store: &Arc<MemoryStore>) -> Self {
        let registry = Registry::new();
        planner(&registry, store, Clock::system(), &CancellationToken::new());
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let bound = runtime.spawn(server(&registry).bind(("127.0.0.1", 0)));
        let bound = bound.await.unwrap().unwrap();
        let (base, handle) = (format!("http://{}", bound.address()), bound.handle());
        runtime.spawn(bound.run());
        Self {
            runtime: Some(runtime),
            base,
            handle,
        }
    }

    fn request(&self, body: &Value) -> reqwest::RequestBuilder {
        everturn_core::install_tls_provider();
        let request = reqwest::Client::new().post(format!("{}{RUN}", self.base));
        request.json(body).bearer_auth("alice-token")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Another process, later: it takes over what is lost and finishes it. Gives what each principal then reads.
async fn finished_elsewhere(store: &Arc<MemoryStore>, id: &Value) -> (Answer, Answer) {
    let (registry, system, open) = (Registry::new(), Clock::system(), CancellationToken::new());
    open.cancel();
    let later = Clock::new(move || system.now() + Duration::from_mins(2));
    let agent = planner(&registry, store, later, &open);
    let served = Served::start(server(&registry)).await;

    let recovery = agent.recover().await;
    assert_eq!(recovery.taken_over.len(), 1, "{recovery:?}");
    agent.idle().await;

    let body = json!({ "data": { "snapshotId": id } });
    let read = |token: &'static str| {
        let request = served.request("/agents/planner/getSnapshot", &body);
        answer(request.bearer_auth(token))
    };
    (read("alice-token").await, read("bob-token").await)
}

fn assert_finished_for_alice_alone(alice: &Answer, bob: &Answer) {
    let row = alice.result();
    assert_eq!(row["status"], "completed");
    assert_eq!(row["state"]["messages"][1]["content"][0]["text"], "planned");
    bob.assert_failure(404, "NOT_FOUND");
}

#[tokio::test]
async fn a_detached_run_whose_process_died_is_finished_for_its_owner() {
    let store = Arc::new(MemoryStore::new());
    let first = Process::start(&store).await;
    let detached = answer(first.request(&detaches("plan the week"))).await.result();

    drop(first);
    let (alice, bob) = finished_elsewhere(&store, &detached["snapshotId"]).await;

    assert_eq!(detached["finishReason"], "detached");
    assert_finished_for_alice_alone(&alice, &bob);
}

#[tokio::test]
async fn a_turn_that_was_detached_at_the_end_of_a_server_is_finished_for_its_owner() {
    let store = Arc::new(MemoryStore::new());
    let first = Process::start(&store).await;
    let turn = first.request(&says("plan the week"));
    let mut turn = turn.header("accept", "text/event-stream").send().await.unwrap();
    turn.chunk().await.unwrap().unwrap();

    first.handle.shut_down();
    let rest = turn.text().await.unwrap();
    drop(first);
    let output = rest.trim_end().rsplit("data: ").next().unwrap();
    let output: Value = serde_json::from_str(output).unwrap();
    let (alice, bob) = finished_elsewhere(&store, &output["result"]["snapshotId"]).await;

    assert_eq!(output["result"]["finishReason"], "detached", "{rest}");
    assert_finished_for_alice_alone(&alice, &bob);
}
