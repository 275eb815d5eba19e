//! The snapshots of a remote agent are read, and its background runs are watched and waited for.

use std::net::SocketAddr;
use std::time::Duration;

use everturn_agent::store::{MemoryStore, SnapshotQuery};
use everturn_agent::{
    Agent, AgentFinishReason, AgentSession, AgentTransport, RunWatch, SNAPSHOT_NOT_FOUND, custom_agent,
};
use everturn_ai::{FinishReason, Message};
use everturn_client::{Client, RemoteAgent, STREAM_BROKEN};
use everturn_core::{Registry, Result, Status};
use everturn_server::Server;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{Loopback, Proxy, Reply, impatient, impatient_builder};

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Week {
    days: u32,
}

/// An agent and a server that makes it a remote one; both end with the test.
struct Serving {
    local: Agent<Week>,
    address: SocketAddr,
    task: JoinHandle<Result<()>>,
    gate: CancellationToken,
}

impl Serving {
    /// An agent whose turns stream a word, wait at the gate and stream another word.
    async fn start() -> Self {
        let (registry, gate) = (Registry::new(), CancellationToken::new());
        let opens = gate.clone();
        let local = custom_agent(&registry, "planner", move |session: AgentSession<Week>| {
            let gate = opens.clone();
            async move {
                session
                    .run(move |turn| {
                        let gate = gate.clone();
                        async move {
                            turn.send_chunk("Monday ").await?;
                            turn.update_custom(|week| week.days += 1);
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
        .store(MemoryStore::new())
        .define()
        .unwrap();
        let server = Server::new(&registry).bind(("127.0.0.1", 0)).await.unwrap();
        Self {
            local,
            address: server.address(),
            task: tokio::spawn(server.run()),
            gate,
        }
    }

    fn remote(&self) -> RemoteAgent<Week> {
        remote_at(self.address)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn remote_at(address: SocketAddr) -> RemoteAgent<Week> {
    impatient()
        .agent(&format!("http://{address}/agents/planner"))
        .unwrap()
}

/// Returns the remaining events of a watcher, one word each.
async fn rest(watch: &mut RunWatch<Week>) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(chunk) = watch.next().await {
        let chunk = chunk.unwrap();
        seen.push(if chunk.turn_end().is_some() {
            format!("end of '{}'", chunk.accumulated_text())
        } else if chunk.raw().custom_patch.is_some() {
            format!("days {}", chunk.custom().unwrap().unwrap().days)
        } else {
            chunk.text().into_owned()
        });
    }
    seen
}

#[tokio::test]
async fn snapshots_are_listed_and_sessions_read_as_in_the_agents_own_process() {
    let server = Serving::start().await;
    server.gate.cancel();
    let remote = server.remote();
    for text in ["one", "two", "three"] {
        remote.chat().resume("s").run(text).await.unwrap();
    }
    let archive = server.local.archive().unwrap();
    let first_page = SnapshotQuery::of("s".into()).oldest_first().limit(2).whole();

    let page = remote.list_snapshots(&first_page).await.unwrap();
    let next = first_page.clone().after(page.next.clone().unwrap());
    let rest = remote.list_snapshots(&next).await.unwrap();
    let view = remote.session("s").await.unwrap();

    assert_eq!(page, archive.list(&first_page).await.unwrap());
    assert_eq!(rest, archive.list(&next).await.unwrap());
    assert_eq!((page.items.len(), rest.items.len(), rest.next), (2, 1, None));
    assert_eq!(view.latest, archive.latest("s").await.unwrap());
    assert_eq!(
        view.latest.index,
        Some(2),
        "what the published form of a snapshot leaves out"
    );
}

#[tokio::test]
async fn a_session_that_does_not_exist_is_empty_and_not_found() {
    let server = Serving::start().await;
    let remote = server.remote();

    let page = remote.list_snapshots(&SnapshotQuery::of("nowhere".into())).await;
    let view = remote.session("nowhere").await;
    let nameless = remote.list_snapshots(&SnapshotQuery::of("".into())).await;

    assert!(page.unwrap().items.is_empty());
    assert!(view.unwrap_err().is(SNAPSHOT_NOT_FOUND));
    assert_eq!(nameless.unwrap_err().status(), Status::InvalidArgument);
}

#[tokio::test]
async fn a_run_is_watched_from_its_beginning_to_its_end() {
    let server = Serving::start().await;
    let task = server.remote().chat().open().await.unwrap().detach("plan").await;
    let task = task.unwrap();

    let mut watch = task.attach().unwrap();
    let first = watch.next().await.unwrap().unwrap();
    server.gate.cancel();
    let live = rest(&mut watch).await;
    let again = rest(&mut server.remote().task(task.snapshot_id().clone()).attach().unwrap()).await;

    assert_eq!(first.text(), "Monday ");
    assert_eq!(live, ["days 1", "Tuesday", "end of 'Monday Tuesday'"]);
    assert_eq!(again[0], "Monday ");
    assert_eq!(again[1..], live);
    assert_eq!(
        task.wait().await.unwrap().finish_reason(),
        AgentFinishReason::Stop
    );
}

#[tokio::test]
async fn a_run_that_does_not_exist_cannot_be_watched() {
    let server = Serving::start().await;
    let mut watch = server.remote().task("nobody").attach().unwrap();

    let error = watch.next().await.unwrap().unwrap_err();

    assert_eq!(error.status(), Status::NotFound);
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_watch_that_loses_its_connection_reports_it_and_can_be_restarted() {
    let server = Serving::start().await;
    let task = server.remote().chat().open().await.unwrap().detach("plan").await;
    let id = task.unwrap().snapshot_id().clone();
    let proxy = Proxy::start(server.address, 1).await;
    let task = remote_at(proxy.address).task(id);

    let mut broken = task.attach().unwrap();
    let mut lost = None;
    while let Some(chunk) = broken.next().await {
        lost = chunk.err();
    }
    let mut again = task.attach().unwrap();
    server.gate.cancel();

    assert!(lost.expect("it does not end by itself").is(STREAM_BROKEN));
    assert_eq!(rest(&mut again).await.last().unwrap(), "end of 'Monday Tuesday'");
}

fn row(status: &str) -> Reply {
    let message = json!({"role": "model", "content": [{"text": "planned"}]});
    Reply::json(&json!({"result": {
        "snapshotId": "r",
        "sessionId": "s",
        "createdAt": "2026-01-01T00:00:00Z",
        "status": status,
        "state": {"messages": [message]},
    }}))
}

async fn waited(client: Client, statuses: &[&str]) -> (Result<String>, usize) {
    let server = Loopback::start(statuses.iter().map(|status| row(status))).await;
    let agent: RemoteAgent<Value> = client.agent(&server.url).unwrap();
    let reply = agent.task("r").wait().await;
    (
        reply.map(|reply| reply.text().into_owned()),
        server.received().len(),
    )
}

#[tokio::test]
async fn a_run_that_lost_its_worker_is_waited_for_until_another_has_finished_it() {
    let taken_over = ["expired", "pending", "completed"];

    let (reply, asked) = waited(impatient(), &taken_over).await;

    assert_eq!((reply.unwrap().as_str(), asked), ("planned", 3));
}

#[tokio::test]
async fn a_run_that_winds_down_or_has_a_newer_status_is_waited_for() {
    let (reply, asked) = waited(impatient(), &["aborting", "pausing", "completed"]).await;

    assert_eq!((reply.unwrap().as_str(), asked), ("planned", 3));
}

#[tokio::test]
async fn a_status_of_a_newer_server_is_read_and_is_not_final() {
    let newer = Loopback::start([row("pausing")]).await;
    let agent: RemoteAgent<Value> = impatient().agent(&newer.url).unwrap();

    let status = agent.get_snapshot("r").await.unwrap().status;

    assert_eq!((status.as_str(), status.is_final()), ("pausing", false));
}

#[tokio::test]
async fn waiting_for_lost_workers_ends_after_the_configured_time() {
    let hasty = impatient_builder()
        .takeover_patience(Duration::ZERO)
        .build()
        .unwrap();

    let (reply, asked) = waited(hasty, &["expired", "completed"]).await;

    assert_eq!((reply.unwrap_err().status(), asked), (Status::Unavailable, 1));
    let usual: RemoteAgent<Value> = impatient().agent("http://localhost/agents/planner").unwrap();
    assert_eq!(usual.takeover_patience(), Duration::from_mins(1));
}
