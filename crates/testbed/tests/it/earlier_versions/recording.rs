//! Recordings: the files in which one version stored the conversations.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::archive::Archive;
use everturn_agent::store::{JournalKey, JournalRecord, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{Clock, Snapshot};
use everturn_core::Error;
use everturn_core::stream_log::{JsonText, StreamKey, StreamLog};
use everturn_file::FileStore;
use everturn_sqlite::{Encoding, SqliteStore, SqliteStreamLog};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::EXPORTED;

/// The files that one version wrote. Tests use copies.
pub(crate) struct Recording {
    folder: PathBuf,
    /// The folder of a recording of the present build.
    _temporary: Option<TempDir>,
}

impl Recording {
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Returns the sessions, journals and pending runs that the stores contain.
    pub(crate) fn conversations(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("conversations.json")).unwrap()).unwrap()
    }
}

/// Returns the recordings of earlier versions, which are the folders in `tests/earlier_versions`, and one of the
/// present build.
pub(crate) async fn all() -> Vec<Recording> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/earlier_versions");
    let entries = std::fs::read_dir(&here)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let recorded = entries.filter(|path| path.is_dir()).map(|folder| Recording {
        folder,
        _temporary: None,
    });
    let mut recordings: Vec<Recording> = recorded.collect();
    let temporary = tempfile::tempdir().unwrap();
    let present = Recording {
        folder: temporary.path().to_owned(),
        _temporary: Some(temporary),
    };
    std::fs::copy(
        here.join("conversations.json"),
        present.path("conversations.json"),
    )
    .unwrap();
    record(&present).await;
    recordings.push(present);
    recordings
}

/// Writes the files of a recording with the present build.
async fn record(recording: &Recording) {
    let conversations = recording.conversations();
    let database = SqliteStore::options(recording.path("sessions.db"))
        .encoding(Encoding::default().blob_threshold(2_000))
        .open()
        .await
        .unwrap();
    fill(&database, &conversations).await;
    let store: Arc<dyn SessionStore> = Arc::new(database.clone());
    for (tenant, session) in EXPORTED {
        let mut file = Vec::new();
        let archive = Archive::of(Arc::clone(&store), Scope::new(tenant));
        archive.export(session, &mut file).await.unwrap();
        std::fs::write(recording.path(&format!("{session}.jsonl")), file).unwrap();
    }
    database.close().await.unwrap();
    fill(
        &FileStore::open(recording.path("sessions")).await.unwrap(),
        &conversations,
    )
    .await;
    record_streams(&recording.path("streams.db")).await;
}

async fn fill(store: &dyn SessionStore, conversations: &Value) {
    for (tenant, sessions) in conversations["sessions"].as_object().unwrap() {
        let scope = Scope::new(tenant.as_str());
        for snapshots in sessions.as_object().unwrap().values() {
            let snapshots: Vec<Snapshot> = serde_json::from_value(snapshots.clone()).unwrap();
            for snapshot in snapshots {
                let id = snapshot.snapshot_id.clone();
                let write = Mutation::new(move |_| Ok(Some(snapshot.clone())));
                store
                    .save(&scope, Some(&id), Precondition::None, write)
                    .await
                    .unwrap();
            }
        }
    }
    for journal in conversations["journals"].as_array().unwrap() {
        let text = |field: &str| journal[field].as_str().unwrap();
        let key = JournalKey::new(text("session").into(), text("turn"));
        for (sequence, body) in (0..).zip(journal["records"].as_array().unwrap()) {
            let record = JournalRecord {
                sequence,
                body: body.clone(),
            };
            let (journals, scope) = (store.journal().unwrap(), Scope::new(text("scope")));
            journals.append(&scope, &key, record, None).await.unwrap();
        }
    }
}

/// Writes two finished streams, and one whose writer is dropped before the end.
async fn record_streams(path: &Path) {
    let clock = Clock::new(|| "2026-01-05T00:00:00Z".parse().unwrap());
    let log = SqliteStreamLog::options(path).clock(clock).open().await.unwrap();
    let write = async |scope: &str, id: &str, chunks: &[Value]| {
        let writer = log.open(&StreamKey::new(scope, id)).await.unwrap();
        for chunk in chunks {
            writer.append(JsonText::of(chunk).unwrap()).await.unwrap();
        }
        writer
    };
    let soup = [
        json!({"modelChunk": {"content": [{"text": "leek"}]}}),
        json!("soup \u{1F95E}"),
    ];
    let output = json!({"message": {"role": "model", "content": [{"text": "leek soup"}]}});
    let told = write("acme", "told", &soup).await;
    told.finish(Ok(JsonText::of(&output).unwrap())).await.unwrap();
    let failed = write("globex", "told", &[json!("burnt")]).await;
    failed
        .finish(Err(Error::not_found("no such dish")))
        .await
        .unwrap();
    drop(write("acme", "broken off", &[json!("half")]).await);
    log.close().await.unwrap();
}
