//! A file that was changed or removed behind the back of the store is named, and never passed over in
//! silence.

use std::path::PathBuf;

use everturn_agent::Snapshot;
use everturn_agent::store::{
    Deletion, Detail, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_core::{Result, Status};
use everturn_file::FileStore;
use tempfile::TempDir;

use crate::support::{ROWS, put, row};

/// A session of three turns.
struct Fixture {
    folder: TempDir,
    store: FileStore,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).await.unwrap();
        for number in 1..=ROWS {
            put(&store, row(number), Precondition::None).await.unwrap();
        }
        Self { folder, store }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("global").join(name)
    }

    async fn latest(&self) -> Result<Option<Snapshot>> {
        self.store
            .latest(&Scope::default(), &"s".into(), Detail::Whole)
            .await
    }

    /// Asserts that the session cannot continue, and that the error names the cause.
    async fn assert_lost(&self, what: &str) {
        let latest = self.latest().await.unwrap_err();
        let saved = put(&self.store, row(9), Precondition::Tip(Some("row-2".into()))).await;
        let found = self.store.verify(&Scope::default()).await.unwrap();

        for error in [latest, saved.unwrap_err()] {
            assert_eq!(error.status(), Status::DataLoss, "{what}: {error}");
            let message = error.message();
            assert!(
                message.contains("'s'") && message.contains("'row-3'"),
                "{what}: {message}"
            );
        }
        assert!(!found.is_clean(), "{what}");
    }
}

#[tokio::test]
async fn a_latest_file_that_was_removed_is_named_until_it_is_given_up() {
    let fixture = Fixture::new().await;
    std::fs::remove_file(fixture.file("row-3.json")).unwrap();

    fixture.assert_lost("removed").await;

    let given_up = Deletion::Snapshots(vec!["row-3".into()]);
    fixture.store.delete(&Scope::default(), &given_up).await.unwrap();
    assert_eq!(fixture.latest().await.unwrap(), Some(row(2)));
    assert!(fixture.store.verify(&Scope::default()).await.unwrap().is_clean());
}

#[tokio::test]
async fn a_latest_file_that_was_changed_is_named() {
    let whole = std::fs::read(Fixture::new().await.file("row-3.json")).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    for (what, content) in [
        ("other text", text.replace("message 2", "message 7")),
        ("another session", text.replace(r#""s""#, r#""t""#)),
        ("another snapshot", text.replace("row-3", "row-8")),
        ("empty", String::new()),
        ("cut off", text[..text.len() / 2].to_owned()),
        ("something else", "{}".to_owned()),
    ] {
        let fixture = Fixture::new().await;
        std::fs::write(fixture.file("row-3.json"), content).unwrap();

        fixture.assert_lost(what).await;
    }
}

#[tokio::test]
async fn no_flipped_bit_is_read_as_if_it_had_been_written() {
    let fixture = Fixture::new().await;
    let (path, mut random) = (fixture.file("row-3.json"), fastrand::Rng::with_seed(17));
    let whole = std::fs::read(&path).unwrap();
    for _ in 0..300 {
        let bit = random.usize(..whole.len() * 8);
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, flipped).unwrap();

        let read = fixture.latest().await;

        let status = read.as_ref().err().map(everturn_core::Error::status);
        assert_eq!(status, Some(Status::DataLoss), "bit {bit}: {read:?}");
    }
}

#[tokio::test]
async fn a_damaged_pointer_hides_nothing() {
    let fixture = Fixture::new().await;
    let (path, mut random) = (fixture.file(".pointers/s.json"), fastrand::Rng::with_seed(18));
    let whole = std::fs::read(&path).unwrap();
    for _ in 0..200 {
        let bit = random.usize(..whole.len() * 8);
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, flipped).unwrap();

        let read = fixture.latest().await;

        assert_eq!(read.unwrap(), Some(row(3)), "bit {bit}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn pipes_and_files_beyond_any_bound_hold_nobody_up() {
    let fixture = Fixture::new().await;
    let pipe = std::process::Command::new("mkfifo")
        .arg(fixture.file("pipe.json"))
        .status();
    assert!(pipe.unwrap().success());
    let huge = std::fs::File::create(fixture.file("huge.json")).unwrap();
    huge.set_len(3 << 30).unwrap();
    std::fs::create_dir(fixture.file("folder.json")).unwrap();

    let new = fixture
        .store
        .latest(&Scope::default(), &"new".into(), Detail::Whole)
        .await;
    let listed = fixture
        .store
        .list(&Scope::default(), &SnapshotQuery::of("s".into()))
        .await;
    let sessions = fixture
        .store
        .sessions(&Scope::default(), &SessionQuery::default())
        .await;

    assert_eq!(new.unwrap(), None);
    assert_eq!(listed.unwrap().items.len(), 3);
    assert_eq!(sessions.unwrap().items.len(), 1);
    for id in ["pipe", "huge"] {
        let read = fixture
            .store
            .get(&Scope::default(), &id.into(), Detail::Whole)
            .await;
        assert_eq!(read.unwrap_err().status(), Status::DataLoss, "{id}");
    }
}

#[tokio::test]
async fn a_file_of_another_runtime_has_no_checksum_and_is_read() {
    let fixture = Fixture::new().await;
    let whole = std::fs::read_to_string(fixture.file("row-2.json")).unwrap();
    std::fs::write(
        fixture.file("row-2.json"),
        whole.trim_end().replace("message 1", "message one"),
    )
    .unwrap();

    let read = fixture
        .store
        .get(&Scope::default(), &"row-2".into(), Detail::Whole)
        .await;

    let state = read.unwrap().unwrap().state.unwrap();
    assert!(
        state
            .messages
            .iter()
            .any(|message| message.text() == "message one")
    );
    let found = fixture.store.verify(&Scope::default()).await.unwrap();
    assert!(found.is_clean(), "{:?}", found.problems);
    assert_eq!((found.snapshots, found.unchecked), (3, 1));
}

#[tokio::test]
async fn a_latest_file_that_is_damaged_together_with_its_pointer_is_named() {
    let pointers = [b"{}".to_vec(), Vec::new(), b"\xff\xff".to_vec()];
    for (pointer, what) in pointers.into_iter().flat_map(|pointer| {
        ["other text", "cut off", "empty", "something else"].map(|what| (pointer.clone(), what))
    }) {
        let fixture = Fixture::new().await;
        let text = std::fs::read_to_string(fixture.file("row-3.json")).unwrap();
        let damaged = match what {
            "other text" => text.replace("message 2", "message 7"),
            "cut off" => text[..text.len() / 2].to_owned(),
            "empty" => String::new(),
            _ => "{}".to_owned(),
        };
        std::fs::write(fixture.file("row-3.json"), damaged).unwrap();
        std::fs::write(fixture.file(".pointers/s.json"), pointer).unwrap();

        fixture.assert_lost(what).await;

        // Other sessions are not affected, and the session continues once the snapshot is given up.
        let other = fixture
            .store
            .latest(&Scope::default(), &"t".into(), Detail::Whole)
            .await;
        assert_eq!(other.unwrap(), None);
        let given_up = Deletion::Snapshots(vec!["row-3".into()]);
        fixture.store.delete(&Scope::default(), &given_up).await.unwrap();
        if matches!(what, "empty" | "something else") {
            // Nothing that is left names the session of the snapshot.
            let error = fixture.latest().await.unwrap_err();
            assert_eq!(error.status(), Status::DataLoss, "{what}: {error}");
            std::fs::remove_file(fixture.file(".pointers/s.json")).unwrap();
        }
        assert_eq!(fixture.latest().await.unwrap(), Some(row(2)));
    }
}

/// Damages a content at random.
fn damage(whole: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut content = whole.to_vec();
    let at = random.usize(..content.len());
    let end = random.usize(at..=content.len());
    match random.u8(..6) {
        0 => content.clear(),
        1 => content.truncate(at),
        2 => content[at..end].fill(0),
        3 => content[at..end].fill_with(|| random.u8(..)),
        4 => content[at] ^= 1 << random.u8(..8),
        _ => drop(content.drain(at..end)),
    }
    content
}

#[tokio::test]
async fn no_damage_to_pointer_and_latest_file_makes_a_session_go_back() {
    const ROUNDS: usize = 600;
    let fixture = Fixture::new().await;
    let (row_file, pointer_file) = (fixture.file("row-3.json"), fixture.file(".pointers/s.json"));
    let whole = [&row_file, &pointer_file].map(|path| std::fs::read(path).unwrap());
    let (mut random, mut noticed) = (fastrand::Rng::with_seed(33), 0);
    for round in 0..ROUNDS {
        std::fs::write(&pointer_file, damage(&whole[1], &mut random)).unwrap();
        let kept = match round % 3 {
            0 => Some(whole[0].clone()),
            1 => Some(damage(&whole[0], &mut random)),
            _ => None,
        };
        match kept {
            Some(content) => std::fs::write(&row_file, content).unwrap(),
            None => drop(std::fs::remove_file(&row_file)),
        }

        let store = FileStore::open(fixture.folder.path()).await.unwrap();
        let latest = store.latest(&Scope::default(), &"s".into(), Detail::Whole).await;

        match latest {
            Ok(found) => assert_eq!(found, Some(row(3)), "round {round}"),
            Err(error) => {
                assert_eq!(error.status(), Status::DataLoss, "round {round}: {error}");
                noticed += 1;
            }
        }
    }
    assert!(
        noticed > ROUNDS / 2,
        "only {noticed} of {ROUNDS} reads noticed anything"
    );
}

#[tokio::test]
async fn a_session_whose_pointer_is_damaged_and_whose_rows_are_missing_is_not_treated_as_new() {
    let fixture = Fixture::new().await;
    for number in 1..=ROWS {
        std::fs::remove_file(fixture.file(&format!("row-{number}.json"))).unwrap();
    }
    std::fs::write(fixture.file(".pointers/s.json"), "").unwrap();

    let store = FileStore::open(fixture.folder.path()).await.unwrap();
    let latest = store.latest(&Scope::default(), &"s".into(), Detail::Whole).await;
    let saved = put(&store, row(9), Precondition::Tip(None)).await;

    for error in [latest.map(drop), saved.map(drop)].map(Result::unwrap_err) {
        assert_eq!(error.status(), Status::DataLoss, "{error}");
    }
}

#[tokio::test]
async fn a_latest_file_that_is_damaged_without_a_pointer_is_named() {
    let fixture = Fixture::new().await;
    let text = std::fs::read_to_string(fixture.file("row-3.json")).unwrap();
    std::fs::write(fixture.file("row-3.json"), text.replace("message 2", "message 7")).unwrap();
    std::fs::remove_file(fixture.file(".pointers/s.json")).unwrap();

    fixture.assert_lost("no pointer").await;

    let all = Deletion::Session("s".into());
    assert_eq!(fixture.store.delete(&Scope::default(), &all).await.unwrap(), 3);
    assert_eq!(fixture.latest().await.unwrap(), None);
}
