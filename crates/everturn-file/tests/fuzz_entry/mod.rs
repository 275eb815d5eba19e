//! The code shared by the fuzz target and the property tests. It uses a folder whose files hold arbitrary
//! bytes as a store. Nothing may panic, and a snapshot that one operation can read is readable by all.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

use std::path::Path;

use everturn_agent::store::{
    Deletion, Detail, JournalKey, PendingQuery, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_core::Status;
use everturn_file::FileStore;

/// Uses a folder that has these bytes as a row, as the pointer of a session, and as the mark of a run.
pub(crate) async fn use_files(root: &Path, row: &[u8], pointer: &[u8], mark: &[u8]) {
    let scope = Scope::default();
    let rows = root.join(scope.as_str());
    for (path, content) in [
        (rows.join("r.json"), row),
        (rows.join(".pointers/s.json"), pointer),
        (root.join(".pending/m.json"), mark),
    ] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let store = FileStore::options(root).without_polling().open().await.unwrap();

    let read = explained(store.get(&scope, &"r".into(), Detail::Whole).await).flatten();
    let latest = explained(store.latest(&scope, &"s".into(), Detail::Whole).await);
    let listed = explained(store.list(&scope, &SnapshotQuery::of("s".into())).await);
    explained(store.sessions(&scope, &SessionQuery::default()).await);
    explained(store.children(&scope, &"r".into()).await);
    explained(store.pending(&PendingQuery::default()).await);
    let journal = store.journal().unwrap();
    explained(journal.read(&scope, &JournalKey::new("s".into(), "t")).await);

    for row in listed.into_iter().flat_map(|page| page.items) {
        assert_eq!(row.snapshot_id, "r".into(), "a row is listed that has no file");
        assert_ne!(latest, Some(None), "a session with rows has a latest one");
    }
    if let Some(row) = read {
        let written = serde_json::to_value(&row).unwrap();
        assert!(serde_json::from_value::<everturn_agent::Snapshot>(written).is_ok());
    }
    explained(store.delete(&scope, &Deletion::Session("s".into())).await);
}

/// Returns the value of an operation on a damaged store. A failure must be `DATA_LOSS`.
fn explained<T>(outcome: everturn_core::Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error) => {
            assert_eq!(error.status(), Status::DataLoss, "{error:?}");
            None
        }
    }
}
