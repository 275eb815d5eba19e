//! Background runs are watched over HTTP: from the beginning, live, to the end, by their owners, from any
//! process.

use std::path::Path;
use std::time::Duration;

use everturn_agent::{Agent, AgentSession, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_core::Registry;
use everturn_core::stream_log::MemoryStreamLog;
use everturn_server::{AfterGrace, BearerTokens, Grace, Server};
use everturn_sqlite::{SqliteStore, SqliteStreamLog};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::agents::detaches;
use crate::support::{Answer, Served, answer};

const RUN: &str = "/agents/planner";
const WATCH: &str = "/agents/planner/watch";

/// One process: an agent on files that others share, and what serves it.
struct Process {
    agent: Agent,
    server: Served,
}

impl Process {
    async fn start(folder: &Path, gate: &CancellationToken) -> Self {
        Self::with(folder, gate, |server| server).await
    }

    async fn with(folder: &Path, gate: &CancellationToken, shape: impl FnOnce(Server) -> Server) -> Self {
        let (registry, gate) = (Registry::new(), gate.clone());
        let log = SqliteStreamLog::open(folder.join("streams.db")).await.unwrap();
        let agent = custom_agent(&registry, "planner", move |session: AgentSession| {
            let gate = gate.clone();
            async move {
                session
                    .run(move |turn| {
                        let gate = gate.clone();
                        async move {
                            turn.send_chunk("Monday ").await?;
                            gate.cancelled().await;
                            turn.send_chunk("Tuesday").await?;
                            turn.add_message(Message::model("Monday Tuesday"));
                            Ok(FinishReason::Stop)
                        }
                    })
                    .await?;
                Ok(session.result())
            }
        })
        .cancellation_grace(Duration::from_millis(10))
        .store(SqliteStore::open(folder.join("sessions.db")).await.unwrap())
        .run_log(log)
        .define()
        .unwrap();
        let tokens = BearerTokens::new([("alice", "alice-token"), ("bob", "bob-token")]);
        let server = Served::start(shape(Server::new(&registry).context(tokens))).await;
        Self { agent, server }
    }

    /// Starts a run of alice's.
    async fn detach(&self) -> Value {
        let detaching = self.server.request(RUN, &detaches("plan"));
        let output = answer(detaching.bearer_auth("alice-token")).await.result();
        json!({ "data": { "snapshotId": output["snapshotId"] } })
    }

    fn watching(&self, run: &Value) -> reqwest::RequestBuilder {
        self.server.request(WATCH, run).bearer_auth("alice-token")
    }

    /// Watches a run until it has shown a text.
    async fn watch_until(&self, run: &Value, text: &str) -> (reqwest::Response, String) {
        let streamed = self.watching(run).header("accept", "text/event-stream");
        let mut response = streamed.send().await.unwrap();
        let mut seen = String::new();
        while !seen.contains(text) {
            let bytes = response.chunk().await.unwrap().expect("the run goes on");
            seen.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        (response, seen)
    }
}

fn events(body: &str) -> Vec<Value> {
    let events = body.split_terminator("\n\n");
    events
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

/// The events of a watcher, without the snapshot's id.
fn shown(events: &[Value]) -> Vec<String> {
    let texts = events.iter().map(|event| {
        let message = &event["message"];
        match message["modelChunk"]["content"][0]["text"].as_str() {
            Some(text) => text.to_owned(),
            None if message["turnEnd"].is_object() => format!("end {}", message["turnEnd"]["finishReason"]),
            None => format!("{}", event["result"]["finishReason"]),
        }
    });
    texts.collect()
}

#[tokio::test]
async fn a_run_is_watched_live_through_another_server_on_the_same_files() {
    let (folder, gate) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let first = Process::start(folder.path(), &gate).await;
    let second = Process::start(folder.path(), &gate).await;
    let run = first.detach().await;

    let (rest, begun) = second.watch_until(&run, "Monday").await;
    gate.cancel();
    let live = events(&(begun + &rest.text().await.unwrap()));
    let late = answer(second.watching(&run).header("accept", "text/event-stream")).await;

    assert_eq!(shown(&live), ["Monday ", "Tuesday", r#"end "stop""#, r#""stop""#]);
    let end = &live.last().unwrap()["result"];
    assert_eq!(end["snapshotId"], run["data"]["snapshotId"]);
    assert_eq!(end["message"]["content"][0]["text"], "Monday Tuesday");
    assert_eq!(
        late.events(),
        live,
        "what is over is shown again, event for event"
    );
    assert_eq!(second.agent.invocations(), 0, "it only looked");
}

#[tokio::test]
async fn a_caller_that_wants_no_stream_gets_the_end_of_the_run() {
    let (folder, gate) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let process = Process::start(folder.path(), &gate).await;
    let run = process.detach().await;

    let (end, ()) = tokio::join!(answer(process.watching(&run)), async { gate.cancel() });

    assert_eq!(end.result()["finishReason"], "stop");
    assert_eq!(end.result().get("state"), None, "a snapshot has that");
}

#[tokio::test]
async fn an_abort_ends_the_watching_and_is_invisible_to_others() {
    let (folder, gate) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let process = Process::start(folder.path(), &gate).await;
    let run = process.detach().await;
    let as_bob = || process.server.request(WATCH, &run).bearer_auth("bob-token");

    let (rest, begun) = process.watch_until(&run, "Monday").await;
    let bob = answer(as_bob()).await;
    let bob_streaming = answer(as_bob().header("accept", "text/event-stream")).await;
    let abort = process.server.request("/agents/planner/abort", &run);
    answer(abort.bearer_auth("alice-token")).await.result();
    let watched = events(&(begun + &rest.text().await.unwrap()));

    assert_eq!(shown(&watched).last().unwrap(), r#""aborted""#);
    bob.assert_failure(404, "NOT_FOUND");
    assert_eq!(bob_streaming.events()[0]["error"]["status"], "NOT_FOUND");
    assert_eq!(bob_streaming.events().len(), 1);
}

#[tokio::test]
async fn watching_is_not_written_down_once_more() {
    let (folder, gate) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    gate.cancel();
    let keeping = |server: Server| server.stream_log(MemoryStreamLog::new());
    let process = Process::with(folder.path(), &gate, keeping).await;
    let run = process.detach().await;
    let watching = || process.watching(&run).header("accept", "text/event-stream");

    let watched = answer(watching()).await;
    let by_name = answer(watching().header("x-genkit-stream-id", "x")).await;

    assert_eq!(watched.header("x-genkit-stream-id"), None);
    assert_eq!(shown(&watched.events()).last().unwrap(), r#""stop""#);
    assert_eq!(
        by_name.events(),
        watched.events(),
        "the run has a name of its own"
    );
}

#[tokio::test]
async fn watchers_do_not_hold_up_the_end_of_a_server() {
    let (folder, gate) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let at_once = Grace {
        period: Duration::ZERO,
        then: AfterGrace::Detach,
    };
    let mut process = Process::with(folder.path(), &gate, |server| server.grace(at_once)).await;
    let run = process.detach().await;
    let (rest, _) = process.watch_until(&run, "Monday").await;

    process.server.handle.shut_down();
    let rest: Answer = answer_of(rest).await;
    process.server.ended().await;

    assert_eq!(
        rest.events().last().unwrap()["error"]["status"],
        "UNAVAILABLE",
        "{rest:?}"
    );
}

async fn answer_of(response: reqwest::Response) -> Answer {
    Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.text().await.unwrap(),
    }
}
