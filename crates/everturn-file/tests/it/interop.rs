//! A folder written by the npm package's `FileSessionStore` is listed and continued here, and the other way
//! round.
//!
//! Ignored by default, because it needs `node` and the package `genkit`, which `./test` installs into
//! `.tools/npm`:
//!
//! ```text
//! cargo test -p everturn-file --test interop -- --ignored
//! ```

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use everturn_agent::SnapshotStatus::{Aborted, Pending};
use everturn_agent::store::{
    Detail, Mutation, Order, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_agent::{Agent, AgentSession, Artifact, Snapshot, SnapshotId, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_core::Registry;
use everturn_file::FileStore;
use everturn_testkit::in_time;
use futures::StreamExt;
use serde_json::{Value, json};

const TURNS: [&str; 5] = ["one", "two", "three", "four", "five"];

/// Lets the npm package take steps in a folder, and returns what came of each; see `interop/talk.mjs`.
fn npm(folder: &Path, steps: &Value) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = root.join("../../.tools/npm").canonicalize();
    let mut node = Command::new("node")
        .arg(root.join("tests/interop/talk.mjs"))
        .arg(packages.expect("./test installs the packages"))
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node is installed");
    write!(node.stdin.take().unwrap(), "{steps}").unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "the npm package failed at {steps}");
    serde_json::from_slice(&output.stdout).expect("the script prints JSON")
}

/// The agent of `interop/talk.mjs`, here.
fn scribe(store: &FileStore) -> Agent {
    let converse = |session: AgentSession| async move {
        let turns = session.run(|turn| async move {
            let said = turn.message().unwrap().text().into_owned();
            let count = turn.messages().len();
            turn.add_message(Message::model(format!("message {count} was: {said}")));
            turn.update_custom(|custom: &mut Value| {
                *custom = json!({"turns": custom["turns"].as_u64().unwrap_or(0) + 1});
            });
            turn.send_artifact(Artifact::text("last", said.as_str())).await?;
            let page = Artifact::text(format!("page {count}"), said).with_metadata_entry("by", "npm");
            turn.send_artifact(page).await?;
            Ok(FinishReason::Stop)
        });
        turns.await?;
        Ok(session.result())
    };
    custom_agent(&Registry::new(), "scribe", converse)
        .store(store.clone())
        .define()
        .unwrap()
}

/// The messages of both agents' conversations after these inputs.
fn conversation<'a>(said: impl IntoIterator<Item = &'a str>) -> Value {
    let (mut messages, mut pages) = (Vec::new(), Vec::new());
    let mut last = "";
    for text in said {
        let count = messages.len() + 1;
        messages.push(json!({"role": "user", "content": [{"text": text}]}));
        let answer = format!("message {count} was: {text}");
        messages.push(json!({"role": "model", "content": [{"text": answer}]}));
        let name = format!("page {count}");
        pages.push(json!({"name": name, "parts": [{"text": text}], "metadata": {"by": "npm"}}));
        last = text;
    }
    pages.insert(0, json!({"name": "last", "parts": [{"text": last}]}));
    json!({
        "sessionId": "s", "messages": messages, "artifacts": pages, "custom": {"turns": messages.len() / 2},
    })
}

fn state(row: &Snapshot) -> Value {
    serde_json::to_value(row.state.as_ref().unwrap()).unwrap()
}

/// A row whose times are written in one way: the package writes `.820Z` where we write `.82Z`.
fn with_moments(mut row: Value) -> Value {
    for time in ["createdAt", "updatedAt"] {
        let moment: jiff::Timestamp = row[time].as_str().unwrap().parse().unwrap();
        row[time] = json!(moment.as_nanosecond().to_string());
    }
    row
}

fn id_in(result: &Value) -> SnapshotId {
    result["snapshotId"].as_str().unwrap().into()
}

async fn listed(store: &FileStore) -> Vec<Snapshot> {
    let mut query = SnapshotQuery::of("s".into());
    query.order = Order::Oldest;
    store.list(&Scope::default(), &query).await.unwrap().items
}

fn ids(rows: &[Snapshot]) -> Vec<SnapshotId> {
    rows.iter().map(|row| row.snapshot_id.clone()).collect()
}

/// Five turns and a branch from the second, made by the npm package. Returns the snapshots, the branch last.
fn written_there(folder: &Path) -> Vec<SnapshotId> {
    let turn = |text| json!({"resume": {"sessionId": "s"}, "say": text});
    let mut steps: Vec<Value> = TURNS.map(turn).into();
    steps.push(json!({"resume": {"snapshotId": "#1"}, "say": "branch"}));
    npm(folder, &Value::Array(steps)).iter().map(id_in).collect()
}

/// The same, made here.
async fn written_here(store: &FileStore) -> Vec<SnapshotId> {
    let agent = scribe(store);
    let mut made = Vec::new();
    for text in TURNS {
        let reply = agent.chat().resume("s").run(text).await.unwrap();
        made.push(reply.snapshot_id().unwrap().clone());
    }
    let branch = agent
        .chat()
        .snapshot(made[1].clone())
        .run("branch")
        .await
        .unwrap();
    made.push(branch.snapshot_id().unwrap().clone());
    made
}

#[tokio::test]
#[ignore = "needs node and the npm package"]
async fn a_folder_written_by_the_npm_package_is_listed_here_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let made = written_there(folder.path());

    let store = FileStore::open(folder.path()).await.unwrap();
    let rows = listed(&store).await;
    let sessions = store.sessions(&Scope::default(), &SessionQuery::default()).await;
    let children = store.children(&Scope::default(), &made[1]).await.unwrap();

    assert_eq!(ids(&rows), made);
    assert_eq!(ids(&children), [made[2].clone(), made[5].clone()]);
    let sessions = sessions.unwrap().items;
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].latest.snapshot_id, made[5]);
    for id in &made {
        let row = store
            .get(&Scope::default(), id, Detail::Whole)
            .await
            .unwrap()
            .unwrap();
        let file = std::fs::read(folder.path().join(format!("global/{id}.json"))).unwrap();
        let written: Value = serde_json::from_slice(&file).unwrap();
        assert_eq!(
            with_moments(serde_json::to_value(row).unwrap()),
            with_moments(written)
        );
    }
}

#[tokio::test]
#[ignore = "needs node and the npm package"]
async fn a_folder_written_by_the_npm_package_is_continued_here_and_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let made = written_there(folder.path());

    let store = FileStore::open(folder.path()).await.unwrap();
    let agent = scribe(&store);
    let on_the_branch = agent.chat().resume("s").run("on").await.unwrap();
    let on_the_trunk = agent.chat().snapshot(made[4].clone()).run("six").await.unwrap();

    let row = agent
        .get_snapshot(on_the_branch.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    assert_eq!(row.parent_id.as_ref(), Some(&made[5]));
    assert_eq!(state(&row), conversation(["one", "two", "branch", "on"]));
    let trunk = agent
        .get_snapshot(on_the_trunk.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    assert_eq!(state(&trunk), conversation(TURNS.into_iter().chain(["six"])));

    let back = npm(
        folder.path(),
        &json!([{"resume": {"sessionId": "s"}, "say": "seven"}, {"load": {"snapshotId": "#0"}}]),
    );
    assert_eq!(back[1]["parentId"], json!(trunk.snapshot_id));
    assert_eq!(
        back[1]["state"],
        conversation(TURNS.into_iter().chain(["six", "seven"]))
    );
}

#[tokio::test]
#[ignore = "needs node and the npm package"]
async fn a_folder_written_here_is_continued_by_the_npm_package() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path()).await.unwrap();
    let made = written_here(&store).await;

    let steps = json!([
        {"load": {"sessionId": "s"}},
        {"load": {"snapshotId": made[4]}},
        {"resume": {"sessionId": "s"}, "say": "on"},
        {"resume": {"snapshotId": made[4]}, "say": "six"},
    ]);
    let there = npm(folder.path(), &steps);

    assert_eq!(id_in(&there[0]), made[5]);
    assert_eq!(there[0]["state"], conversation(["one", "two", "branch"]));
    assert_eq!(there[1]["state"], conversation(TURNS));
    let rows = listed(&store).await;
    let all: Vec<SnapshotId> = made
        .iter()
        .cloned()
        .chain([id_in(&there[2]), id_in(&there[3])])
        .collect();
    assert_eq!(ids(&rows), all);
    assert_eq!(rows[6].parent_id.as_ref(), Some(&made[5]));
    let latest = store.latest(&Scope::default(), &"s".into(), Detail::Whole).await;
    assert_eq!(
        state(&latest.unwrap().unwrap()),
        conversation(TURNS.into_iter().chain(["six"]))
    );
}

#[tokio::test]
#[ignore = "needs node and the npm package"]
async fn both_find_the_same_latest_when_the_pointers_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path()).await.unwrap();
    let mut made = written_here(&store).await;
    let pointers = folder.path().join("global/.pointers");
    let load = json!([{"load": {"sessionId": "s"}}]);

    std::fs::remove_dir_all(&pointers).unwrap();
    assert_eq!(id_in(&npm(folder.path(), &load)[0]), made[5]);

    made.push(id_in(
        &npm(
            folder.path(),
            &json!([{"resume": {"sessionId": "s"}, "say": "on"}]),
        )[0],
    ));
    std::fs::remove_dir_all(&pointers).unwrap();
    let latest = store
        .latest(&Scope::default(), &"s".into(), Detail::Metadata)
        .await;
    assert_eq!(latest.unwrap().unwrap().snapshot_id, made[6]);
}

#[tokio::test]
#[ignore = "needs node and the npm package"]
async fn an_abort_by_the_npm_package_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::options(folder.path())
        .poll_every(Duration::from_millis(20))
        .open()
        .await
        .unwrap();
    let mut row = Snapshot::new("run".into(), "s".into(), jiff::Timestamp::now());
    row.status = Pending;
    row.heartbeat_at = Some(row.created_at);
    let put = Mutation::new(move |_| Ok(Some(row.clone())));
    store
        .save(&Scope::default(), Some(&"run".into()), Precondition::None, put)
        .await
        .unwrap();
    let mut statuses = store.watch(&Scope::default(), &"run".into()).unwrap();
    assert_eq!(statuses.next().await, Some(Pending));

    npm(folder.path(), &json!([{"abort": "run"}]));

    let heard = in_time("the abort is reported", statuses.next()).await;
    assert_eq!(heard, Some(Aborted));
}
