//! Traces across a detach, a takeover and a remote agent.

use std::sync::Arc;

use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_agent::{Agent, AgentSession, Clock, Heartbeat, WorkerLoss, agent, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_client::RemoteAgent;
use everturn_core::{Registry, run};
use everturn_otlp::Otlp;
use everturn_server::Server;
use everturn_testkit::{Gate, OfflineModel};
use jiff::{SignedDuration, Timestamp};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use crate::collector::{Collector, ONE_AT_A_TIME, attributes, texts};

/// An agent that waits at a gate in every turn.
fn waiting(registry: &Registry, store: Arc<dyn SessionStore>, gate: Gate, clock: Clock) -> Agent {
    custom_agent(registry, "waiter", move |session: AgentSession| {
        let gate = gate.clone();
        async move {
            session
                .run(|turn| {
                    let gate = gate.clone();
                    async move {
                        gate.pass().await;
                        turn.add_message(Message::model("Served."));
                        Ok(FinishReason::Stop)
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
    .store(store)
    .heartbeat(Heartbeat::default())
    .on_worker_loss(WorkerLoss::TakeOver { attempts: 3 })
    .clock(clock)
    .define()
    .unwrap()
}

#[tokio::test]
async fn watching_a_detached_run_is_linked_to_the_call_that_detached_it() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let collector = Collector::start().await;
    let telemetry = Otlp::new().endpoint(&collector.url).start().unwrap();
    let (registry, gate) = (Registry::new(), Gate::new());
    waiting(
        &registry,
        Arc::new(MemoryStore::new()),
        gate.clone(),
        Clock::system(),
    );
    let served = Server::new(&registry).bind(("127.0.0.1", 0)).await.unwrap();
    let remote: RemoteAgent =
        RemoteAgent::new(&format!("http://{}/agents/waiter", served.address())).unwrap();
    let serving = tokio::spawn(served.run());

    let mut chat = remote.chat().open().await.unwrap();
    let task = chat.detach("A soup, please.").await.unwrap();
    let mut watch = task.attach().unwrap();
    gate.open();
    while watch.next().await.is_some() {}
    task.wait().await.unwrap();
    telemetry.flush().await;
    serving.abort();

    let spans = collector.named("waiter");
    let detached = spans
        .iter()
        .find(|span| attributes(span)["genkit:metadata:subtype"] == "agent")
        .unwrap();
    let event = detached
        .events
        .iter()
        .find(|event| event.name == "detached")
        .unwrap();
    assert_eq!(
        texts(&event.attributes)["snapshotId"],
        task.snapshot_id().as_str()
    );
    // The turn continues in the trace of the call, after the call's span has ended.
    let turn = collector.span("runTurn-1");
    assert_eq!(turn.parent_span_id, detached.span_id);
    assert!(turn.end_time_unix_nano >= detached.end_time_unix_nano);
    let watched = spans
        .iter()
        .find(|span| attributes(span)["genkit:metadata:subtype"] == "agent-watch")
        .unwrap();
    assert_ne!(watched.trace_id, detached.trace_id);
    let [link] = watched.links.as_slice() else {
        panic!("{watched:?}");
    };
    assert_eq!(
        (&link.trace_id, &link.span_id),
        (&detached.trace_id, &detached.span_id)
    );
    assert_eq!(texts(&link.attributes)["everturn.relation"], "watch");
}

#[tokio::test]
async fn a_takeover_is_a_trace_of_its_own_that_is_linked_to_the_first() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let collector = Collector::start().await;
    let telemetry = Otlp::new().endpoint(&collector.url).start().unwrap();
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    // The first worker dies: its runtime and its tasks are dropped.
    let lost = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let waiter = waiting(&Registry::new(), store, Gate::new(), Clock::system());
                let mut chat = waiter.chat().open().await.unwrap();
                chat.detach("A soup, please.")
                    .await
                    .unwrap()
                    .snapshot_id()
                    .clone()
            })
        })
        .join()
        .unwrap()
    };
    let gate = Gate::new();
    gate.open();
    let later = Clock::new(|| Timestamp::now() + SignedDuration::from_hours(1));
    let waiter = waiting(&Registry::new(), store, gate, later);

    let recovered = waiter.recover().await;
    assert_eq!(recovered.taken_over.len(), 1, "{recovered:?}");
    waiter.task(lost.clone()).wait().await.unwrap();
    telemetry.flush().await;

    let spans = collector.named("waiter");
    let (first, second) = (&spans[0], &spans[1]);
    assert_ne!(first.trace_id, second.trace_id);
    assert!(second.parent_span_id.is_empty());
    let [link] = second.links.as_slice() else {
        panic!("{second:?}");
    };
    assert_eq!((&link.trace_id, &link.span_id), (&first.trace_id, &first.span_id));
    assert_eq!(texts(&link.attributes)["everturn.relation"], "takeover");
    assert_eq!(attributes(second)["everturn.run.attempt"], "2");
    for span in [first, second] {
        assert_eq!(attributes(span)["gen_ai.agent.name"], "waiter");
    }
    assert_eq!(
        attributes(first)["gen_ai.conversation.id"],
        attributes(second)["gen_ai.conversation.id"]
    );
    let left = first
        .events
        .iter()
        .find(|event| event.name == "detached")
        .unwrap();
    assert_eq!(texts(&left.attributes)["snapshotId"], lost.as_str());
    // The turn of the second worker belongs to that worker's trace.
    let turns = collector.named("runTurn-1");
    let turn = turns
        .iter()
        .find(|turn| turn.trace_id == second.trace_id)
        .unwrap();
    assert_eq!(turn.parent_span_id, second.span_id);
}

#[tokio::test]
async fn a_remote_agent_is_part_of_the_trace_of_its_caller() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let collector = Collector::start().await;
    let telemetry = Otlp::new().endpoint(&collector.url).start().unwrap();
    let registry = Registry::new();
    OfflineModel::new().register(&registry, "offline").unwrap();
    agent(&registry, "chef")
        .model("offline")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    let served = Server::new(&registry).bind(("127.0.0.1", 0)).await.unwrap();
    let remote: RemoteAgent = RemoteAgent::new(&format!("http://{}/agents/chef", served.address())).unwrap();
    let serving = tokio::spawn(served.run());

    let asked = run("asks elsewhere", || async {
        Ok(remote
            .chat()
            .run("Soup?")
            .await?
            .session_id()
            .map(ToString::to_string))
    });
    let session = asked.await.unwrap().unwrap();
    telemetry.flush().await;
    serving.abort();

    let (asks, chef) = (collector.span("asks elsewhere"), collector.span("chef"));
    assert_eq!(chef.trace_id, asks.trace_id);
    assert_eq!(chef.parent_span_id, asks.span_id);
    assert_eq!(chef.kind(), SpanKind::Server);
    assert_eq!(collector.span("runTurn-1").parent_span_id, chef.span_id);
    let agent = attributes(&chef);
    assert_eq!(agent["gen_ai.operation.name"], "invoke_agent");
    assert_eq!(agent["gen_ai.agent.name"], "chef");
    assert_eq!(agent["gen_ai.conversation.id"], session);
    let model = collector.span("offline");
    assert_eq!(
        (&model.trace_id, model.kind()),
        (&asks.trace_id, SpanKind::Client)
    );
}
