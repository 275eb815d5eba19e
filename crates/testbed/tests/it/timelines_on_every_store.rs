//! Rewinding, and resuming from the middle of a turn, with every store and after reopening it.

use std::path::PathBuf;
use std::sync::Arc;

use SnapshotEvent::{RoundEnd, TurnEnd};
use everturn_agent::archive::{Archive, Import};
use everturn_agent::store::{MemoryStore, Mutation, Order, Precondition, Scope, SessionStore, SnapshotQuery};
use everturn_agent::{
    Agent, AgentInit, AgentInput, AgentOutput, AgentSession, Snapshot, SnapshotEvent, SnapshotId,
    SnapshotIds, SnapshotPolicy, SnapshotStatus, Timeline, agent, custom_agent,
};
use everturn_ai::{Message, NoInput, Tool, ToolContext, set_default_model};
use everturn_core::{Error, Registry};
use everturn_file::FileStore;
use everturn_postgres::PostgresStore;
use everturn_sqlite::SqliteStore;
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::json;
use tempfile::TempDir;

/// A store that can be reopened, as by another process.
pub(crate) enum Place {
    Memory(MemoryStore),
    Sqlite(PathBuf),
    Files(PathBuf),
    Postgres { url: String, schema: String },
}

impl Place {
    pub(crate) fn all(folder: &TempDir) -> Vec<Self> {
        let mut places = vec![
            Self::Memory(MemoryStore::new()),
            Self::Sqlite(folder.path().join("sessions.db")),
            Self::Files(folder.path().join("sessions")),
        ];
        match std::env::var("EVERTURN_TEST_POSTGRES") {
            Ok(url) => places.push(Self::Postgres {
                url,
                schema: format!("timelines_{:016x}", fastrand::u64(..)),
            }),
            Err(_) => println!("skipped: EVERTURN_TEST_POSTGRES names no server; ./test starts one"),
        }
        places
    }

    pub(crate) async fn open(&self) -> Arc<dyn SessionStore> {
        match self {
            Self::Memory(store) => Arc::new(store.clone()),
            Self::Sqlite(path) => Arc::new(SqliteStore::open(path).await.unwrap()),
            Self::Files(path) => Arc::new(FileStore::open(path).await.unwrap()),
            Self::Postgres { url, schema } => {
                let options = PostgresStore::options(url).schema(schema).connections(2);
                Arc::new(options.open().await.unwrap())
            }
        }
    }

    /// Returns the rows of session `s`, oldest first, and whether they were superseded.
    async fn rows(&self) -> Vec<(SnapshotId, bool)> {
        let mut query = SnapshotQuery::of("s".into());
        query.order = Order::Oldest;
        query.orphaned = true;
        let page = self.open().await.list(&Scope::default(), &query).await.unwrap();
        page.items
            .into_iter()
            .map(|row| (row.snapshot_id, row.orphaned))
            .collect()
    }
}

async fn invoke(agent: &Agent, init: AgentInit, input: impl Into<AgentInput>) -> AgentOutput {
    let mut connection = agent.connect(init);
    connection.send(input).await.unwrap();
    connection.close();
    connection.output().await.unwrap()
}

fn parrot(store: Arc<dyn SessionStore>) -> Agent {
    custom_agent(&Registry::new(), "parrot", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.add_message(Message::model("heard"));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .store(store)
    .timeline(Timeline::Linear)
    .snapshot_ids(SnapshotIds::ContentAddressed)
    .snapshot_id_in_messages()
    .define()
    .unwrap()
}

/// The file of a session with a background run whose worker has been silent for a long time.
async fn run_of_a_lost_worker() -> Vec<u8> {
    let run = json!({
        "snapshotId": "run", "sessionId": "s", "createdAt": "2020-01-02T03:04:05Z",
        "heartbeatAt": "2020-01-02T03:04:05Z", "status": "pending",
        "backgroundRun": {
            "agent": "parrot", "worker": "00000000-0000-0000-0000-000000000001", "epoch": 1, "attempts": 1, "turns": 0,
            "inputs": [{"message": {"role": "user", "content": [{"text": "pay"}]}}],
            "principal": {"id": "root", "roles": ["operator"]},
        },
    });
    let run: Snapshot = serde_json::from_value(run).unwrap();
    let (store, id) = (MemoryStore::new(), run.snapshot_id.clone());
    let mutation = Mutation::new(move |_| Ok(Some(run.clone())));
    let scope = Scope::default();
    store
        .save(&scope, Some(&id), Precondition::None, mutation)
        .await
        .unwrap();
    let mut file = Vec::new();
    let archive = Archive::of(store, Scope::default());
    archive.export("s", &mut file).await.unwrap();
    file
}

#[tokio::test]
async fn no_store_recovers_a_run_from_an_imported_file() {
    let file = run_of_a_lost_worker().await;
    assert!(String::from_utf8_lossy(&file).contains("backgroundRun"));
    let folder = tempfile::tempdir().unwrap();
    for place in Place::all(&folder) {
        let agent = parrot(place.open().await);
        let archive = agent.archive().unwrap();
        archive.import(file.as_slice(), Import::default()).await.unwrap();

        let recovery = agent.recover().await;

        assert!(recovery.failures.is_empty(), "{recovery:?}");
        assert!(
            recovery.taken_over.is_empty() && recovery.given_up.is_empty(),
            "{recovery:?}"
        );
        let snapshot = agent.get_snapshot("run").await.unwrap();
        assert_eq!(snapshot.status, SnapshotStatus::Aborted);
    }
}

#[tokio::test]
async fn a_linear_timeline_is_rewound_and_recovered() {
    let folder = tempfile::tempdir().unwrap();
    for place in Place::all(&folder) {
        // Each turn runs in another process.
        let turn = async |init: AgentInit, text: &str| {
            let output = invoke(&parrot(place.open().await), init, text).await;
            assert_eq!(output.error, None);
            output.snapshot_id.unwrap()
        };
        let left_behind = async |ids: &[SnapshotId], expected: &[usize]| {
            let rows = place.rows().await;
            let found: Vec<usize> = (0..ids.len())
                .filter(|index| rows.contains(&(ids[*index].clone(), true)))
                .collect();
            assert_eq!(rows.len(), ids.len(), "nothing is lost");
            assert_eq!(found, expected);
        };
        let mut ids = Vec::new();
        for text in ["a", "b", "c", "d"] {
            ids.push(turn(AgentInit::session("s"), text).await);
        }
        left_behind(&ids, &[]).await;

        ids.push(turn(AgentInit::snapshot(ids[1].clone()), "e").await);
        left_behind(&ids, &[2, 3]).await;

        ids.push(turn(AgentInit::session("s"), "f").await);
        left_behind(&ids, &[2, 3]).await;

        ids.push(turn(AgentInit::snapshot(ids[3].clone()), "g").await);
        left_behind(&ids, &[4, 5]).await;

        let tip = parrot(place.open().await).latest_snapshot("s").await.unwrap();
        let said: Vec<String> = tip
            .state
            .as_ref()
            .unwrap()
            .messages
            .iter()
            .step_by(2)
            .map(|message| message.text().into_owned())
            .collect();
        assert_eq!(tip.snapshot_id, ids[6]);
        assert_eq!(said, ["a", "b", "c", "d", "g"]);
        assert!(tip.verify().unwrap());
    }
}

fn chef(store: Arc<dyn SessionStore>, model: &ScriptedModel) -> Agent {
    let registry = Registry::new();
    model.register(&registry, "scripted").unwrap();
    set_default_model(&registry, "scripted");
    let oven = Tool::new("oven", "Heats.", |_: NoInput, _: ToolContext| async { Ok("hot") });
    agent(&registry, "chef")
        .tool(oven)
        .store(store)
        .snapshots(SnapshotPolicy::on([RoundEnd, TurnEnd]))
        .define()
        .unwrap()
}

#[tokio::test]
async fn a_turn_is_continued_from_its_middle_by_another_process() {
    let folder = tempfile::tempdir().unwrap();
    for place in Place::all(&folder) {
        let model = ScriptedModel::new().replies([
            Reply::tool("oven", json!({})),
            Reply::error(Error::unavailable("the process dies")),
        ]);
        let failed = invoke(&chef(place.open().await, &model), AgentInit::session("s"), "bake").await;
        let middle = failed.snapshot_id.unwrap();
        assert!(failed.error.is_some());

        let model = ScriptedModel::new().reply("Done.");
        let agent = chef(place.open().await, &model);
        let output = invoke(&agent, AgentInit::session("s"), AgentInput::default()).await;

        assert_eq!(output.error, None);
        assert_eq!(output.message.unwrap().text(), "Done.");
        let asked = model.last_request().unwrap();
        let answer = serde_json::to_value(asked.messages.last().unwrap()).unwrap();
        assert_eq!(asked.messages.len(), 3);
        assert_eq!(answer["content"][0]["toolResponse"]["output"], "hot");
        let row = agent.latest_snapshot("s").await.unwrap();
        assert_eq!(row.parent_id, Some(middle.clone()));
        assert_eq!(row.state.unwrap().messages.len(), 4);

        let model = ScriptedModel::new().reply("Stopped.");
        let agent = chef(place.open().await, &model);
        let branch = invoke(&agent, AgentInit::snapshot(middle), "stop").await;

        assert_eq!(branch.message.unwrap().text(), "Stopped.");
        assert_eq!(model.last_request().unwrap().messages.len(), 4);
    }
}

/// An agent that answers with the number of messages that it has seen.
fn counter(store: Arc<dyn SessionStore>, policy: SnapshotPolicy) -> Agent {
    custom_agent(&Registry::new(), "counter", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.add_message(Message::model(turn.messages().len().to_string()));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .store(store)
    .snapshots(policy)
    .define()
    .unwrap()
}

#[tokio::test]
async fn no_policy_loses_a_turn_although_every_turn_has_a_process_of_its_own() {
    let folder = TempDir::new().unwrap();
    let policies = [
        SnapshotPolicy::default(),
        SnapshotPolicy::never(),
        SnapshotPolicy::on([RoundEnd]),
        SnapshotPolicy::on([SnapshotEvent::InvocationEnd]),
        SnapshotPolicy::when(|moment| moment.event == TurnEnd && moment.turn_index % 2 == 1),
    ];

    for place in Place::all(&folder) {
        for (number, policy) in policies.iter().enumerate() {
            let (by_session, by_snapshot) = (format!("session {number}"), format!("snapshot {number}"));
            let mut last = AgentInit::session(by_snapshot.as_str());
            for turn in 0..5 {
                let expected = (2 * turn + 1).to_string();
                let agent = counter(place.open().await, policy.clone());
                let reply = agent.chat().resume(by_session.as_str()).run("a").await.unwrap();
                assert_eq!(reply.text(), expected, "{policy:?} by the session's id");

                let output = invoke(&counter(place.open().await, policy.clone()), last, "a").await;
                assert_eq!(
                    output.message.unwrap().text(),
                    expected,
                    "{policy:?} by the output's snapshot"
                );
                last = AgentInit::snapshot(output.snapshot_id.unwrap());
            }
            let agent = counter(place.open().await, policy.clone());
            let mut chat = agent.chat().resume(by_session.as_str()).open().await.unwrap();
            assert_eq!(chat.messages().len(), 10);
            chat.detach("a").await.unwrap().wait().await.unwrap();

            let agent = counter(place.open().await, policy.clone());
            let reply = agent.chat().resume(by_session.as_str()).run("a").await.unwrap();
            assert_eq!(reply.text(), "13", "{policy:?} after a background run");
        }
    }
}
