//! Rows that other programs wrote are read, and their other files are ignored.

use std::path::{Path, PathBuf};

use everturn_agent::store::{
    Detail, Mutation, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_agent::{Snapshot, SnapshotId};
use everturn_file::{Disk, FileStore, RealDisk};
use everturn_testkit::eventually;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

struct Fixture {
    folder: TempDir,
    store: FileStore,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::options(folder.path())
            .max_chain(2)
            .open()
            .await
            .unwrap();
        Self { folder, store }
    }

    /// Puts a file into the folder as another program would.
    fn leave(&self, path: &str, content: impl AsRef<[u8]>) {
        let path: PathBuf = self.folder.path().join("global").join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Waits until a file is so old that the store need not read it again.
    async fn settled(&self, path: &str) {
        let path = self.folder.path().join("global").join(path);
        eventually("the file is old enough", async || {
            RealDisk.version(&path).is_some()
        })
        .await;
    }

    async fn save(&self, id: &str, parent: Option<&str>, seconds: i64) {
        let mut row = Snapshot::new(id.into(), "s".into(), Timestamp::from_second(seconds).unwrap());
        row.parent_id = parent.map(SnapshotId::from);
        let put = Mutation::new(move |_| Ok(Some(row.clone())));
        self.store
            .save(&Scope::default(), Some(&id.into()), Precondition::None, put)
            .await
            .unwrap();
    }

    async fn latest(&self) -> Option<SnapshotId> {
        let latest = self
            .store
            .latest(&Scope::default(), &"s".into(), Detail::Metadata)
            .await;
        latest.unwrap().map(|row| row.snapshot_id)
    }

    async fn listed(&self) -> Vec<SnapshotId> {
        let page = self
            .store
            .list(&Scope::default(), &SnapshotQuery::of("s".into()))
            .await;
        page.unwrap()
            .items
            .into_iter()
            .map(|row| row.snapshot_id)
            .collect()
    }
}

fn row(id: &str, second: u8) -> Value {
    json!({
        "snapshotId": id, "sessionId": "s", "createdAt": format!("2026-01-02T03:04:{second:02}.000Z"),
        "status": "completed", "state": {"sessionId": "s", "messages": []},
    })
}

#[tokio::test]
async fn a_row_that_names_its_session_only_in_its_state_belongs_to_it() {
    let fixture = Fixture::new().await;
    let mut old = row("old", 1);
    old.as_object_mut().unwrap().remove("sessionId");

    fixture.leave("old.json", old.to_string());

    assert_eq!(fixture.latest().await, Some("old".into()));
    assert_eq!(fixture.listed().await, ["old".into()]);
    let sessions = fixture
        .store
        .sessions(&Scope::default(), &SessionQuery::default())
        .await;
    assert_eq!(sessions.unwrap().items.len(), 1);
}

#[tokio::test]
async fn files_that_are_no_rows_are_passed_over() {
    let fixture = Fixture::new().await;
    fixture.leave("good.json", row("good", 1).to_string());

    fixture.leave("torn.json", &row("torn", 2).to_string()[..40]);
    fixture.leave("renamed.json", row("other", 3).to_string());
    fixture.leave("outside.json", row("../outside", 4).to_string());
    fixture.leave("..hidden.json", row("..hidden", 5).to_string());
    fixture.leave("good.json.123.tmp", row("good", 6).to_string());
    fixture.leave("notes.txt", "salt");

    assert_eq!(fixture.listed().await, ["good".into()]);
    assert_eq!(fixture.latest().await, Some("good".into()));
}

#[tokio::test]
async fn a_pointer_that_does_not_hold_is_mended() {
    for pointer in [
        "",
        "{}",
        r#"{"currentSnapshotId": "../good"}"#,
        r#"{"currentSnapshotId": "gone"}"#,
    ] {
        let fixture = Fixture::new().await;
        fixture.leave("good.json", row("good", 1).to_string());
        fixture.leave(".pointers/s.json", pointer);

        assert_eq!(fixture.latest().await, Some("good".into()), "{pointer:?}");

        let mended = std::fs::read_to_string(fixture.folder.path().join("global/.pointers/s.json")).unwrap();
        assert!(mended.contains(r#""currentSnapshotId": "good""#), "{mended}");
    }
}

#[tokio::test]
async fn a_parent_that_cannot_be_a_file_ends_the_chain() {
    let fixture = Fixture::new().await;

    fixture.save("a", Some("../up"), 1).await;
    fixture.save("b", Some("a"), 2).await;

    assert_eq!(fixture.listed().await, ["b".into(), "a".into()]);
}

#[tokio::test]
async fn a_row_that_is_written_over_is_seen_as_it_is_now() {
    let fixture = Fixture::new().await;
    fixture.leave("b.json", row("b", 5).to_string());

    // Of one length, in one place, and faster than many clocks go.
    for second in (0..100).map(|turn| if turn % 2 == 0 { 4 } else { 6 }) {
        fixture.leave("a.json", row("a", second).to_string());

        let newest = if second == 4 { "b" } else { "a" };
        assert_eq!(fixture.listed().await[0], newest.into());
    }
}

#[tokio::test]
async fn a_row_that_was_known_for_long_is_seen_as_it_is_now() {
    let fixture = Fixture::new().await;
    fixture.leave("a.json", row("a", 4).to_string());
    fixture.leave("b.json", row("b", 5).to_string());
    fixture.settled("a.json").await;
    fixture.settled("b.json").await;
    assert_eq!(fixture.listed().await, ["b".into(), "a".into()]);

    fixture.leave("a.json", row("a", 6).to_string());
    assert_eq!(fixture.listed().await, ["a".into(), "b".into()]);

    fixture.leave("moved", row("b", 7).to_string());
    let folder = fixture.folder.path().join("global");
    std::fs::rename(folder.join("moved"), folder.join("b.json")).unwrap();
    assert_eq!(fixture.listed().await, ["b".into(), "a".into()]);

    std::fs::remove_file(folder.join("b.json")).unwrap();
    assert_eq!(fixture.listed().await, ["a".into()]);
}
