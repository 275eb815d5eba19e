//! The code shared by the fuzz targets and the property tests. It replaces single values of a database with
//! arbitrary ones and uses the database as a store and as a stream log. Nothing may panic or run forever, and
//! an error names the damage.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "each user drives its part of this, and what cannot be set up has failed"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::patch::JsonPatch;
use everturn_agent::store::{
    Deletion, Detail, Mutation, PendingQuery, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_agent::{Artifact, SessionState, Snapshot, SnapshotStatus};
use everturn_ai::Message;
use everturn_core::Status;
use everturn_core::stream_log::{JsonText, Position, StreamKey, StreamLog};
use everturn_sqlite::{Durability, SqliteStore, SqliteStreamLog};
use futures::StreamExt;
use jiff::Timestamp;
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::json;

/// One damage: which column, which row of its table, what kind of value is put there, and the value.
pub(crate) type Damage = (u8, u8, u8, i64, Vec<u8>);

const STORE: &[(&str, &str)] = &[
    ("lineage", "parent"),
    ("lineage", "base"),
    ("lineage", "open"),
    ("message", "key"),
    ("message", "cuts"),
    ("message", "body"),
    ("document", "base"),
    ("document", "depth"),
    ("document", "cuts"),
    ("document", "body"),
    ("blob", "body"),
    ("message_blob", "offset"),
    ("message_blob", "blob"),
    ("document_blob", "offset"),
    ("document_blob", "blob"),
    ("tip", "created_at"),
    ("tip", "id"),
    ("snapshot", "id"),
    ("snapshot", "parent"),
    ("snapshot", "created_at"),
    ("snapshot", "updated_at"),
    ("snapshot", "heartbeat_at"),
    ("snapshot", "status"),
    ("snapshot", "finish_reason"),
    ("snapshot", "event"),
    ("snapshot", "number"),
    ("snapshot", "turn"),
    ("snapshot", "orphaned"),
    ("snapshot", "details"),
    ("snapshot", "lineage"),
    ("snapshot", "up_to"),
    ("snapshot", "custom"),
    ("snapshot", "artifacts"),
    ("snapshot", "prompt_input"),
    ("snapshot", "rest"),
    ("journal", "sequence"),
    ("journal", "added_at"),
    ("journal", "body"),
];

const STREAMS: &[(&str, &str)] = &[
    ("stream", "written"),
    ("stream", "writer"),
    ("stream", "stop"),
    ("stream", "end"),
    ("stream", "body"),
    ("stream", "expires_at"),
    ("batch", "stream"),
    ("batch", "last"),
    ("batch", "body"),
    ("writer", "lease_until"),
];

/// Makes a good store at `path`, with every form in which values are kept.
pub(crate) async fn fill_store(path: &Path) {
    let store = options(path).open().await.unwrap();
    let mut state = SessionState::default();
    for number in 0..4_i64 {
        let long = format!("{number} leeks ").repeat(40);
        state.messages.push(Message::user(long.as_str()));
        state.custom = Some(Arc::new(
            json!({"pantry": vec![long.as_str(); 20], "count": number}),
        ));
        state.artifacts = Arc::new(vec![Artifact::text("menu", long.as_str())]);
        save(&store, row(&format!("r{number}"), number, &state))
            .await
            .unwrap();
    }
    let mut branch = row(
        "branch",
        9,
        &SessionState {
            messages: state.messages.truncate_to(2),
            ..state
        },
    );
    branch.parent_id = Some("r1".into());
    branch.status = SnapshotStatus::Pending;
    save(&store, branch).await.unwrap();
}

/// Makes a good stream log at `path`.
pub(crate) async fn fill_streams(path: &Path) {
    let log = SqliteStreamLog::open(path).await.unwrap();
    for (id, outcome) in [
        ("done", Ok(json!("soup"))),
        ("failed", Err(everturn_core::Error::internal("burnt"))),
    ] {
        let writer = log.open(&StreamKey::new("ann", id)).await.unwrap();
        for number in 0..5 {
            writer.append(JsonText::of(&number).unwrap()).await.unwrap();
        }
        let outcome = outcome.map(|output| JsonText::of(&output).unwrap());
        writer.finish(outcome).await.unwrap();
    }
}

fn options(path: &Path) -> everturn_sqlite::SqliteStoreOptions {
    let options = SqliteStore::options(path).durability(Durability::Normal);
    options.encoding(
        everturn_sqlite::Encoding::default()
            .blob_threshold(128)
            .compress_over(64),
    )
}

fn row(id: &str, second: i64, state: &SessionState) -> Snapshot {
    let mut row = Snapshot::new(id.into(), "s".into(), Timestamp::from_second(second).unwrap());
    row.state = Some(state.clone());
    row
}

async fn save(store: &SqliteStore, row: Snapshot) -> everturn_core::Result<Option<Snapshot>> {
    let id = row.snapshot_id.clone();
    let put = Mutation::new(move |_| Ok(Some(row.clone())));
    store
        .save(&Scope::default(), Some(&id), Precondition::None, put)
        .await
}

/// Applies the requested change to a database. Changes that SQLite rejects are skipped.
fn damage(path: &Path, columns: &[(&str, &str)], damages: &[Damage]) {
    let db = Connection::open(path).unwrap();
    db.pragma_update(None, "foreign_keys", false).unwrap();
    for (column, row, kind, number, bytes) in damages {
        let (table, column) = columns[usize::from(*column) % columns.len()];
        let value = match kind % 6 {
            0 => Value::Null,
            1 => Value::Integer(*number),
            2 => Value::Integer(number % 8),
            3 => Value::Blob(bytes.clone()),
            4 => Value::Text(json!([JsonPatch::default(), String::from_utf8_lossy(bytes)]).to_string()),
            _ => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        };
        // Tables without a row id are small here: all their rows are damaged.
        let is_keyed = !matches!(table, "tip" | "message_blob" | "document_blob");
        let chosen = format!(
            " WHERE rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET {})",
            row % 8
        );
        let sql = format!(
            "UPDATE {table} SET {column} = ?1{}",
            if is_keyed { &chosen } else { "" }
        );
        let _ = db.execute(&sql, [value]);
    }
}

/// A copy of a good database, with damages.
fn damaged(folder: &Path, good: &Path, columns: &[(&str, &str)], damages: &[Damage]) -> PathBuf {
    let path = folder.join("damaged.db");
    std::fs::copy(good, &path).unwrap();
    damage(&path, columns, damages);
    path
}

/// Uses a damaged store in every way that there is.
pub(crate) async fn use_store(folder: &Path, good: &Path, damages: &[Damage]) {
    let path = damaged(folder, good, STORE, damages);
    let (scope, session) = (Scope::default(), "s".into());
    let store = options(&path).open().await.unwrap();

    for id in ["r0", "r1", "r2", "r3", "branch"] {
        explained(store.get(&scope, &id.into(), Detail::Whole).await);
    }
    explained(store.latest(&scope, &session, Detail::Whole).await);
    explained(store.list(&scope, &SnapshotQuery::of("s".into())).await);
    explained(store.sessions(&scope, &SessionQuery::default()).await);
    explained(store.children(&scope, &"r1".into()).await);
    explained(store.pending(&PendingQuery::default()).await);
    explained(store.verify().await);
    // A write may violate a constraint of the database because of the damage.
    let _ = save(&store, row("new", 20, &SessionState::default())).await;
    let _ = store
        .delete(&scope, &Deletion::Snapshots(vec!["r3".into()]))
        .await;
    let _ = store.delete(&scope, &Deletion::Session("s".into())).await;
}

/// Reads a damaged stream log.
pub(crate) async fn use_streams(folder: &Path, good: &Path, damages: &[Damage]) {
    let path = damaged(folder, good, STREAMS, damages);
    let log = SqliteStreamLog::open(&path).await.unwrap();

    for (id, after) in [("done", 0), ("failed", 3)] {
        let key = StreamKey::new("ann", id);
        let Some(entries) = explained(log.read(&key, Position::new(after)).await) else {
            continue;
        };
        // One whose end is gone waits for a writer that does not exist.
        let all = tokio::time::timeout(Duration::from_millis(40), entries.collect::<Vec<_>>()).await;
        for entry in all.into_iter().flatten() {
            explained(entry);
        }
        explained(log.stop(&key).await);
    }
    if let Some(writer) = explained(log.open(&StreamKey::new("ann", "new")).await) {
        explained(writer.finish(Ok(JsonText::of(&()).unwrap())).await);
    }
}

/// Returns the value of an operation on a damaged database. A failure must not report a bug of the program.
fn explained<T>(outcome: everturn_core::Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error) => {
            assert_ne!(error.status(), Status::Internal, "{error:?}");
            assert_ne!(error.status(), Status::Unknown, "{error:?}");
            None
        }
    }
}
