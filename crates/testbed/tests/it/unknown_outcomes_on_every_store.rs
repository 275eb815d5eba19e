//! A call whose turn died is listed, kept, and taken over by a turn elsewhere in the session, with every
//! store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::archive::Archive;
use everturn_agent::store::{Scope, SessionQuery, SessionStore};
use everturn_agent::{Agent, AgentInit, AgentOutput, Clock, Concurrency, UnfinishedCall, agent};
use everturn_ai::{NoInput, Reconciliation, Tool, ToolContext, set_default_model};
use everturn_core::Registry;
use everturn_testkit::{Gate, Reply, ScriptedModel};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::timelines_on_every_store::Place;

fn later() -> Clock {
    Clock::new(|| Timestamp::now() + SignedDuration::from_mins(2))
}

fn desk(store: Arc<dyn SessionStore>, model: &ScriptedModel, book: Tool, policy: Concurrency) -> Agent {
    let registry = Registry::new();
    model.register(&registry, "scripted").unwrap();
    set_default_model(&registry, "scripted");
    let desk = agent(&registry, "desk").tool(book).store(store).clock(later());
    desk.concurrency(policy).define().unwrap()
}

async fn listed(store: Arc<dyn SessionStore>) -> Vec<UnfinishedCall> {
    let archive = Archive::of(store, Scope::default()).with_clock(later());
    let list = archive.interrupted(&SessionQuery::default()).await.unwrap();
    list.unfinished
}

async fn say(agent: &Agent, init: AgentInit, text: &str) -> AgentOutput {
    let mut connection = agent.connect(init);
    connection.send(text).await.unwrap();
    connection.close();
    connection.output().await.unwrap()
}

/// A tool whose call never ends.
fn endless(gate: &Gate) -> Tool {
    let gate = gate.clone();
    Tool::new("book", "Books.", move |_: NoInput, _: ToolContext| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok("booked")
        }
    })
}

/// A tool that finds that the call took effect, and counts how often it is called and asked.
fn found(runs: &Arc<AtomicUsize>, asked: &Arc<AtomicUsize>) -> Tool {
    let (runs, asked) = (Arc::clone(runs), Arc::clone(asked));
    let book = move |_: NoInput, _: ToolContext| {
        runs.fetch_add(1, Ordering::SeqCst);
        async { Ok("booked again") }
    };
    Tool::new("book", "Books.", book).with_reconcile(move |_: NoInput, _| {
        asked.fetch_add(1, Ordering::SeqCst);
        async { Ok(Reconciliation::Happened("booked as 17")) }
    })
}

#[tokio::test]
async fn a_call_of_a_dead_turn_is_listed_and_taken_over_elsewhere_with_every_store() {
    let folder = tempfile::tempdir().unwrap();
    for place in Place::all(&folder) {
        for policy in [Concurrency::Reject, Concurrency::Fork] {
            let session = format!("{policy:?}");
            let (runs, asked) = (Arc::default(), Arc::default());
            let book = || found(&runs, &asked);
            let model = ScriptedModel::new().replies(["one", "two"]);
            let talking = desk(place.open().await, &model, book(), policy);
            let init = || AgentInit::session(session.as_str());
            let first = say(&talking, init(), "a").await.snapshot_id.unwrap();
            say(&talking, init(), "b").await;

            let (gate, model) = (
                Gate::new(),
                ScriptedModel::new().reply(Reply::tool("book", json!({}))),
            );
            let dying = desk(place.open().await, &model, endless(&gate), policy);
            let connection = dying.connect(init());
            connection.send("book").await.unwrap();
            gate.reached().await;
            drop(connection);
            dying.idle().await;

            let store = place.open().await;
            let journal = store.journal().unwrap();
            let future = Timestamp::now() + SignedDuration::from_hours(1);
            journal.sweep(future).await.unwrap();
            let open = listed(Arc::clone(&store)).await;
            let [call] = open.as_slice() else {
                panic!("{open:?}");
            };
            assert_eq!(
                (call.tool.as_str(), call.session_id.as_str()),
                ("book", session.as_str())
            );

            let model = ScriptedModel::new().replies(["It is booked.", "Yes."]);
            let next = desk(store, &model, book(), policy);
            let reply = say(&next, AgentInit::snapshot(first.clone()), "is it booked?").await;

            assert_eq!(reply.message.unwrap().text(), "It is booked.");
            let request = serde_json::to_value(model.last_request().unwrap().messages).unwrap();
            assert!(request.to_string().contains("booked as 17"), "{request}");
            assert!(listed(place.open().await).await.is_empty());
            say(&next, AgentInit::snapshot(first), "really?").await;
            let counts = [&runs, &asked].map(|count| count.load(Ordering::SeqCst));
            assert_eq!(counts, [0, 1], "calls and reconciliations");
        }
    }
}
