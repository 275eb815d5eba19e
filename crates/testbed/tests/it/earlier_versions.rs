//! Conversations that another version wrote are read as they were written, and continue.
//!
//! `tests/earlier_versions/README.md` describes them. Every test runs on the recordings of earlier versions in
//! that folder, of which there is none yet, and on one that the present build makes.

mod agents;
mod recording;

use std::path::Path;
use std::sync::Arc;

use everturn_agent::archive::{Archive, Import};
use everturn_agent::store::{
    Detail, JournalKey, MemoryStore, PendingQuery, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_agent::{Agent, AgentInit, AgentInput, AgentOutput, Clock, Snapshot, SnapshotStatus};
use everturn_core::stream_log::{Position, StreamEvent, StreamKey, StreamLog, WRITER_LOST};
use everturn_core::{Context, Status};
use everturn_file::FileStore;
use everturn_sqlite::{SqliteStore, SqliteStreamLog};
use everturn_testkit::{Reply, ScriptedModel};
use futures::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::agents::{Fetched, cook, gardener, notary, scribe};
use self::recording::Recording;

/// The sessions that were exported too.
const EXPORTED: [(&str, &str); 2] = [("global", "kitchen"), ("acme", "errand")];

const TENANTS: [&str; 3] = ["global", "acme", "globex"];

/// A copy of what one store wrote.
struct Copy {
    store: Arc<dyn SessionStore>,
    /// Last, so that the store is closed before its files go.
    _folder: TempDir,
}

impl Copy {
    /// Returns a copy of each store of a recording.
    async fn of(recording: &Recording) -> [Self; 2] {
        [
            Self::of_database(recording).await.0,
            Self::of_files(recording).await,
        ]
    }

    /// Returns a copy of each store of every recording.
    async fn all() -> Vec<Self> {
        let mut copies = Vec::new();
        for recording in recording::all().await {
            copies.extend(Self::of(&recording).await);
        }
        copies
    }

    async fn of_database(recording: &Recording) -> (Self, SqliteStore) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        std::fs::copy(recording.path("sessions.db"), &path).unwrap();
        let store = SqliteStore::open(&path).await.unwrap();
        let copy = Self {
            store: Arc::new(store.clone()),
            _folder: folder,
        };
        (copy, store)
    }

    async fn of_files(recording: &Recording) -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(&recording.path("sessions"), &folder.path().join("sessions"));
        Self {
            store: Arc::new(FileStore::open(folder.path().join("sessions")).await.unwrap()),
            _folder: folder,
        }
    }

    fn archive(&self, tenant: &str) -> Archive {
        Archive::of(Arc::clone(&self.store), Scope::new(tenant))
    }

    /// The snapshots of a session as they are stored, oldest first.
    async fn snapshots(&self, tenant: &str, session: &str) -> Vec<Snapshot> {
        snapshots(self.store.as_ref(), tenant, session).await
    }

    async fn labelled(&self, session: &str, label: &str) -> Snapshot {
        let snapshots = self.snapshots("global", session).await;
        let is_labelled = |snapshot: &Snapshot| snapshot.labels.iter().any(|found| found == label);
        snapshots.into_iter().find(is_labelled).unwrap()
    }
}

async fn snapshots(store: &dyn SessionStore, tenant: &str, session: &str) -> Vec<Snapshot> {
    let query = SnapshotQuery::of(session.into())
        .oldest_first()
        .with_orphaned()
        .whole();
    store.list(&Scope::new(tenant), &query).await.unwrap().items
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Returns the last text of each snapshot, and whether the snapshot is superseded.
fn timeline(snapshots: &[Snapshot]) -> Vec<(String, bool)> {
    let said = |snapshot: &Snapshot| {
        let state = snapshot.state.as_ref().unwrap();
        state.messages.last().unwrap().text().into_owned()
    };
    snapshots
        .iter()
        .map(|snapshot| (said(snapshot), snapshot.orphaned))
        .collect()
}

async fn invoke(agent: &Agent, init: AgentInit, input: impl Into<AgentInput>) -> AgentOutput {
    let mut connection = agent.connect(init);
    connection.send(input).await.unwrap();
    connection.close();
    connection.output().await.unwrap()
}

#[tokio::test]
async fn every_snapshot_is_read_as_it_was_written() {
    for recording in recording::all().await {
        let expected = recording.conversations();
        for copy in Copy::of(&recording).await {
            assert_holds(&copy, &expected).await;
        }
    }
}

async fn assert_holds(copy: &Copy, expected: &Value) {
    let mut sessions = json!({});
    for tenant in TENANTS {
        let page = copy
            .store
            .sessions(&Scope::new(tenant), &SessionQuery::default())
            .await;
        for summary in page.unwrap().items {
            let id = summary.session_id.as_str();
            let read = copy.snapshots(tenant, id).await;
            let tip = read
                .iter()
                .filter(|snapshot| !snapshot.orphaned)
                .max_by_key(|snapshot| snapshot.created_at)
                .map(|snapshot| Detail::Metadata.cut(snapshot.clone()));
            assert_eq!(Some(summary.latest), tip, "the tip of '{id}'");
            sessions[tenant][id] = serde_json::to_value(&read).unwrap();
        }
    }
    assert_eq!(sessions, expected["sessions"]);

    let pending = copy
        .store
        .pending(&PendingQuery::default())
        .await
        .unwrap()
        .unwrap();
    let runs: Vec<Value> = pending
        .items
        .iter()
        .map(|run| json!([run.scope.as_str(), run.snapshot.snapshot_id]))
        .collect();
    assert_eq!(json!(runs), expected["pending"]);

    for journal in expected["journals"].as_array().unwrap() {
        let text = |field: &str| journal[field].as_str().unwrap().to_owned();
        let key = JournalKey::new(text("session").into(), text("turn"));
        let records = copy
            .store
            .journal()
            .unwrap()
            .read(&Scope::new(text("scope")), &key)
            .await;
        let bodies: Vec<Value> = records.unwrap().into_iter().map(|record| record.body).collect();
        assert_eq!(json!(bodies), journal["records"]);
    }
}

#[tokio::test]
async fn the_database_is_sound_and_stays_so() {
    for recording in recording::all().await {
        let (copy, database) = Copy::of_database(&recording).await;
        assert_stays_sound(&copy, &database).await;
    }
}

async fn assert_stays_sound(copy: &Copy, database: &SqliteStore) {
    let before = database.verify().await.unwrap();
    let agent = scribe(&copy.store, &Clock::system());

    let mut chat = agent.chat().resume("kitchen").open().await.unwrap();
    for text in ["count", "make", "count"] {
        chat.run(text).await.unwrap();
    }
    copy.archive("global")
        .delete_branch(copy.labelled("kitchen", "good").await.snapshot_id)
        .await
        .unwrap();
    copy.archive("acme").delete_session("kitchen").await.unwrap();
    let after = database.verify().await.unwrap();

    assert!(before.is_clean(), "{:?}", before.problems);
    assert!(after.is_clean(), "{:?}", after.problems);
}

#[tokio::test]
async fn a_conversation_continues_from_its_tip_and_from_a_branch() {
    for copy in Copy::all().await {
        let agent = scribe(&copy.store, &Clock::system());
        for (label, by_session) in [("tip", true), ("good", false)] {
            let before = copy.labelled("kitchen", label).await;
            let init = if by_session {
                AgentInit::session("kitchen")
            } else {
                AgentInit::snapshot(before.snapshot_id.clone())
            };

            let output = invoke(&agent, init, "count").await;

            let after = agent.get_snapshot(output.snapshot_id.unwrap()).await.unwrap();
            let (state, earlier) = (after.state.unwrap(), before.state.unwrap());
            assert_eq!(after.parent_id, Some(before.snapshot_id));
            assert_eq!(after.turn_index, before.turn_index.map(|turn| turn + 1));
            assert_eq!(
                state.messages.truncate_to(earlier.messages.len()),
                earlier.messages
            );
            assert_eq!(state.messages.len(), earlier.messages.len() + 2);
            assert_eq!(state.artifacts, earlier.artifacts);
            let count = |custom: Option<Arc<Value>>| custom.unwrap()["count"].as_u64().unwrap();
            assert_eq!(count(state.custom), count(earlier.custom) + 1);
        }
    }
}

#[tokio::test]
async fn snapshots_of_other_writers_are_resumed_whole() {
    for copy in Copy::all().await {
        let agent = scribe(&copy.store, &Clock::system());
        let before = copy.snapshots("global", "strangers").await.pop().unwrap();

        invoke(&agent, AgentInit::session("strangers"), "and on").await;

        let after = copy.snapshots("global", "strangers").await.pop().unwrap();
        let json = |snapshot: &Snapshot| serde_json::to_value(&snapshot.state).unwrap();
        let (mut after, before) = (json(&after), json(&before));
        after["messages"]
            .as_array_mut()
            .unwrap()
            .truncate(before["messages"].as_array().unwrap().len());
        assert_eq!(after, before);
    }
}

#[tokio::test]
async fn an_unfinished_rewind_is_finished() {
    for copy in Copy::all().await {
        let left = |flags: [bool; 4]| {
            ["0", "1", "2", "3"]
                .map(|text| format!("re: {text}"))
                .into_iter()
                .zip(flags)
                .collect::<Vec<_>>()
        };
        let found = copy.snapshots("global", "attic").await;
        assert_eq!(timeline(&found), left([false; 4]), "nothing is marked yet");
        let agent = gardener(&copy.store, &Clock::system());

        let tip = agent.latest_snapshot("attic").await.unwrap();

        assert_eq!(tip.snapshot_id, found[3].snapshot_id);
        let attic = copy.snapshots("global", "attic").await;
        assert_eq!(timeline(&attic), left([false, true, true, false]));
        let garden = copy.snapshots("global", "garden").await;
        assert_eq!(
            timeline(&garden),
            timeline(&attic),
            "where the writing version finished the rewind"
        );
        let stored = serde_json::to_value(&attic).unwrap();
        assert_eq!(stored[3].get("unfinishedRewind"), None);
        assert_eq!(invoke(&agent, AgentInit::session("attic"), "4").await.error, None);
    }
}

#[tokio::test]
async fn a_lost_run_is_taken_over_and_its_tools_do_not_run_again() {
    for copy in Copy::all().await {
        let (model, fetched) = (
            ScriptedModel::new().replies([
                Reply::text("You have leeks and salt."),
                Reply::tool("fetch", json!({"what": "bread"})),
                Reply::text("And bread."),
            ]),
            Fetched::default(),
        );
        let agent = cook(&copy.store, &Clock::system(), &model, &fetched);

        let recovery = agent.recover().await;
        agent.idle().await;

        assert!(
            recovery.failures.is_empty() && recovery.given_up.is_empty(),
            "{recovery:?}"
        );
        let run = &recovery.taken_over[0];
        assert_eq!(
            (run.scope.as_str(), run.session_id.as_str(), run.attempt),
            ("acme", "errand", 2)
        );
        assert_eq!(
            *fetched.lock().unwrap(),
            ["bread"],
            "leeks and salt were fetched before"
        );
        model.assert_finished();
        let snapshot = copy
            .store
            .get(&run.scope, &run.snapshot_id, Detail::Whole)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(snapshot.status, SnapshotStatus::Completed);
        let state = snapshot.state.unwrap();
        let said: Vec<_> = state
            .messages
            .iter()
            .map(|message| message.text().into_owned())
            .filter(|text| !text.is_empty())
            .collect();
        assert_eq!(
            said,
            [
                "hello",
                "Welcome.",
                "buy leeks and salt",
                "You have leeks and salt.",
                "and bread",
                "And bread."
            ]
        );
        let made: Vec<_> = state
            .artifacts
            .iter()
            .filter_map(|artifact| artifact.given_name())
            .collect();
        assert_eq!(made, ["leeks", "salt", "bread"]);
    }
}

#[tokio::test]
async fn a_turn_continues_from_its_middle_with_its_journal() {
    for copy in Copy::all().await {
        let (model, fetched) = (ScriptedModel::new().reply("It holds."), Fetched::default());
        let agent = cook(&copy.store, &Clock::system(), &model, &fetched);
        let middle = copy.labelled("workshop", "glued").await;

        let output = invoke(
            &agent,
            AgentInit::snapshot(middle.snapshot_id),
            AgentInput::default(),
        )
        .await;

        assert_eq!(output.error, None);
        assert_eq!(output.message.unwrap().text(), "It holds.");
        assert!(
            fetched.lock().unwrap().is_empty(),
            "the nails were fetched before"
        );
        let asked = serde_json::to_value(model.last_request().unwrap().messages)
            .unwrap()
            .to_string();
        assert!(
            asked.contains("here are the glue") && asked.contains("here are the nails"),
            "{asked}"
        );
        assert!(asked.contains("You cook for Bob."), "{asked}");
    }
}

#[tokio::test]
async fn a_run_that_failed_is_resumed() {
    for copy in Copy::all().await {
        let agent = scribe(&copy.store, &Clock::system());
        let tip = agent.latest_snapshot("burnt").await.unwrap();

        let after = agent.chat().resume("burnt").run("again").await.unwrap();

        let after = agent.get_snapshot(after.snapshot_id().unwrap().clone());
        assert_eq!(tip.status, SnapshotStatus::Failed);
        assert_eq!(after.await.unwrap().parent_id, Some(tip.snapshot_id));
    }
}

#[tokio::test]
async fn a_run_that_was_aborted_without_a_state_is_refused_and_names_the_snapshot_before_it() {
    for copy in Copy::all().await {
        let agent = scribe(&copy.store, &Clock::system());
        let tip = agent.latest_snapshot("stopped").await.unwrap();

        let refused = agent.chat().resume("stopped").run("again").await.unwrap_err();
        let before = tip.parent_id.unwrap();
        let after = invoke(&agent, AgentInit::snapshot(before.clone()), "again").await;

        assert_eq!(tip.status, SnapshotStatus::Aborted);
        assert_eq!(refused.status(), Status::FailedPrecondition);
        assert_eq!(refused.details(), Some(&json!({"resumableSnapshotId": before})));
        let after = agent.get_snapshot(after.snapshot_id.unwrap()).await.unwrap();
        assert_eq!(after.parent_id, Some(before));
    }
}

#[tokio::test]
async fn snapshots_named_after_their_content_hold_it() {
    for copy in Copy::all().await {
        let agent = notary(&copy.store, &Clock::system());
        invoke(&agent, AgentInit::session("deeds"), "more").await;

        let deeds = copy.snapshots("global", "deeds").await;

        assert_eq!(deeds.len(), 4);
        for snapshot in deeds {
            assert!(snapshot.verify().unwrap(), "{}", snapshot.snapshot_id);
        }
    }
}

#[tokio::test]
async fn sessions_are_exported_to_the_same_files() {
    for recording in recording::all().await {
        for copy in Copy::of(&recording).await {
            for (tenant, session) in EXPORTED {
                let mut file = Vec::new();
                copy.archive(tenant).export(session, &mut file).await.unwrap();

                let before = std::fs::read(recording.path(&format!("{session}.jsonl"))).unwrap();
                assert_eq!(
                    String::from_utf8(file).unwrap(),
                    String::from_utf8(before).unwrap()
                );
            }
        }
    }
}

/// Returns a snapshot as it is imported: no worker continues a run or a turn of a file.
fn without_run(mut snapshot: Value) -> Snapshot {
    let members = snapshot.as_object_mut().unwrap();
    for note in ["backgroundRun", "openTurn"] {
        members.remove(note);
    }
    if members["status"] == "pending" {
        members.remove("heartbeatAt");
        members["status"] = json!("aborted");
    }
    serde_json::from_value(snapshot).unwrap()
}

#[tokio::test]
async fn exported_sessions_are_imported_whole_and_continue() {
    for recording in recording::all().await {
        for (tenant, session) in EXPORTED {
            let file = std::fs::read(recording.path(&format!("{session}.jsonl"))).unwrap();
            let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
            let archive = Archive::of(Arc::clone(&store), Scope::new(tenant));

            archive.import(file.as_slice(), Import::default()).await.unwrap();

            let expected = &recording.conversations()["sessions"][tenant][session];
            let expected: Vec<Value> = serde_json::from_value(expected.clone()).unwrap();
            let expected = expected.into_iter().map(without_run);
            assert_eq!(
                snapshots(store.as_ref(), tenant, session).await,
                expected.collect::<Vec<_>>()
            );
            if session == "kitchen" {
                let output = invoke(
                    &scribe(&store, &Clock::system()),
                    AgentInit::session(session),
                    "count",
                )
                .await;
                assert_eq!(output.error, None);
            }
        }
    }
}

#[tokio::test]
async fn tenants_stay_apart() {
    for copy in Copy::all().await {
        let agent = scribe(&copy.store, &Clock::system());
        for tenant in ["acme", "globex"] {
            let context = Context::new().with_value("auth", tenant);
            let mut chat = agent
                .chat()
                .resume("kitchen")
                .context(context)
                .open()
                .await
                .unwrap();
            chat.run("again").await.unwrap();
            let said: Vec<_> = chat
                .messages()
                .iter()
                .map(|message| message.text().into_owned())
                .collect();
            let first = format!("from {tenant}");
            assert_eq!(
                said,
                [first.as_str(), &format!("re: {first}"), "again", "re: again"]
            );
        }
    }
}

#[tokio::test]
async fn streams_are_read_again_and_one_whose_writer_died_is_ended() {
    for recording in recording::all().await {
        assert_streams(&recording.path("streams.db")).await;
    }
}

async fn assert_streams(recorded: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("streams.db");
    std::fs::copy(recorded, &path).unwrap();
    // A minute later: nothing has expired, and the writer's lease has lapsed.
    let clock = Clock::new(|| "2026-01-05T00:01:00Z".parse().unwrap());
    let log = SqliteStreamLog::options(&path).clock(clock).open().await.unwrap();
    let read = async |scope: &str, id: &str| -> Vec<StreamEvent> {
        let entries = log
            .read(&StreamKey::new(scope, id), Position::START)
            .await
            .unwrap();
        entries.map(|entry| entry.unwrap().event).collect().await
    };
    let texts = |events: &[StreamEvent]| -> Vec<Value> {
        let text = |event: &StreamEvent| match event {
            StreamEvent::Chunk(text) | StreamEvent::Done(text) => {
                serde_json::from_str(text.as_str()).unwrap()
            }
            StreamEvent::Failed(error) => json!(error.to_string()),
        };
        events.iter().map(text).collect()
    };

    let told = read("acme", "told").await;
    assert_eq!(
        texts(&told),
        [
            json!({"modelChunk": {"content": [{"text": "leek"}]}}),
            json!("soup \u{1F95E}"),
            json!({"message": {"role": "model", "content": [{"text": "leek soup"}]}}),
        ]
    );
    assert!(matches!(told.last(), Some(StreamEvent::Done(_))));
    let failed = texts(&read("globex", "told").await);
    assert_eq!(failed[0], json!("burnt"));
    assert!(failed[1].as_str().unwrap().contains("no such dish"), "{failed:?}");
    let broken = read("acme", "broken off").await;
    assert_eq!(texts(&broken[..1]), [json!("half")]);
    let Some(StreamEvent::Failed(error)) = broken.last() else {
        panic!("{broken:?}")
    };
    assert!(error.is(WRITER_LOST));
}
