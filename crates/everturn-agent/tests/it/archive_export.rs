//! Sessions that leave in a file and come back.

use std::sync::Arc;

use everturn_agent::archive::{Archive, Import};
use everturn_agent::store::{
    MemoryStore, Mutation, Order, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_agent::{Agent, Artifact, Snapshot, SnapshotId, SnapshotStatus, Turn};
use everturn_ai::Message;
use everturn_core::Status;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{FaultyStore, handling, said};

const SIZE: usize = 2_000;

/// Answers at length, keeps a large document that seldom changes, and makes artifacts.
fn scribe(store: MemoryStore) -> Agent {
    handling("scribe", |turn: Turn| async move {
        let said = said(&turn);
        turn.add_message(Message::model(format!("re: {said}")));
        if turn.custom().is_null() {
            turn.update_custom(|custom| *custom = json!({"padding": "x".repeat(SIZE), "weight": 0.1 + 0.2}));
        }
        if said.starts_with("make") {
            turn.send_artifact(Artifact::text(said.as_str(), "y".repeat(SIZE)))
                .await?;
        }
        Ok(())
    })
    .store(store)
    .define()
    .unwrap()
}

async fn go_on(agent: &Agent, from: &SnapshotId, text: &str) -> SnapshotId {
    let reply = agent.chat().snapshot(from.clone()).run(text).await.unwrap();
    reply.snapshot_id().unwrap().clone()
}

async fn put(store: &MemoryStore, snapshot: Snapshot) {
    let id = snapshot.snapshot_id.clone();
    let mutation = Mutation::new(move |_| Ok(Some(snapshot.clone())));
    store
        .save(&Scope::default(), Some(&id), Precondition::None, mutation)
        .await
        .unwrap();
}

/// A session with everything a session can have but a run: branches, a gap, labels, notes, an orphan, a
/// snapshot without a state, a rewritten history, fields of other versions.
async fn rich() -> (MemoryStore, Archive) {
    let store = MemoryStore::new();
    let agent = scribe(store.clone());
    let archive = Archive::of(store.clone(), Scope::default());
    let first = agent.chat().resume("s").run("one").await.unwrap();
    let first = first.snapshot_id().unwrap().clone();
    let mut tip = first.clone();
    for text in [
        "two",
        "make plan",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
    ] {
        tip = go_on(&agent, &tip, text).await;
    }
    let middle = go_on(&agent, &first, "another way").await;
    let branch = go_on(&agent, &middle, "make list").await;
    archive.delete_snapshot(middle).await.unwrap();
    archive.label(branch.clone(), "good").await.unwrap();
    archive.annotate(branch.clone(), "a\nnote").await.unwrap();
    let mut orphan = archive.get(branch.clone()).await.unwrap();
    orphan.snapshot_id = "left behind".into();
    orphan.orphaned = true;
    orphan.created_at = Timestamp::MAX;
    orphan.state.as_mut().unwrap().messages = [Message::user("a summary")].into_iter().collect();
    orphan
        .state
        .as_mut()
        .unwrap()
        .extra
        .insert("novelty".to_owned(), json!(1));
    put(&store, orphan).await;
    let mut aborted = Snapshot {
        parent_id: Some(tip),
        status: SnapshotStatus::Aborted,
        ..Snapshot::new("aborted".into(), "s".into(), Timestamp::UNIX_EPOCH)
    };
    aborted
        .extra
        .insert("pendingInputs".to_owned(), json!([{"detach": true}]));
    put(&store, aborted).await;
    (store, archive)
}

async fn all(archive: &Archive, session: &str) -> Vec<Snapshot> {
    let mut query = SnapshotQuery::of(session.into()).with_orphaned().whole();
    query.order = Order::Oldest;
    archive.list(&query).await.unwrap().items
}

async fn exported(archive: &Archive) -> Vec<u8> {
    let mut file = Vec::new();
    archive.export("s", &mut file).await.unwrap();
    file
}

fn lines(file: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn file(lines: &[Value]) -> Vec<u8> {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    lines
        .join(
            "
",
        )
        .into_bytes()
}

fn elsewhere() -> Archive {
    Archive::of(MemoryStore::new(), Scope::default())
}

#[tokio::test]
async fn an_imported_session_equals_the_exported_one() {
    let (_, archive) = rich().await;
    let before = all(&archive, "s").await;
    let file = exported(&archive).await;
    let other = elsewhere();

    let imported = other.import(file.as_slice(), Import::default()).await.unwrap();

    assert_eq!((imported.session_id.as_str(), imported.snapshots), ("s", 14));
    assert_eq!(all(&other, "s").await, before);
    assert_eq!(exported(&other).await, file, "the same session is the same file");
    assert_eq!(archive.tree("s").await.unwrap(), other.tree("s").await.unwrap());
}

#[tokio::test]
async fn each_message_and_each_unchanged_document_is_written_once() {
    let (_, archive) = rich().await;

    let file = exported(&archive).await;

    let text = String::from_utf8(file.clone()).unwrap();
    for said in ["two", "three", "ten", "another way", "make list"] {
        assert_eq!(text.matches(&format!("\"re: {said}\"")).count(), 1, "{said}");
    }
    assert_eq!(text.matches(&"x".repeat(SIZE)).count(), 1);
    let messages: usize = lines(&file)
        .iter()
        .filter_map(|line| Some(line["row"]["snapshot"]["state"]["messages"].as_array()?.len()))
        .sum();
    assert_eq!(
        messages,
        22 + 4 + 1,
        "eleven turns, two on the branch, and the summary"
    );
    let end = lines(&file).pop().unwrap();
    assert_eq!(end, json!({"end": {"snapshots": 14, "messages": messages}}));
}

#[tokio::test]
async fn imported_snapshots_share_their_common_messages() {
    let (_, archive) = rich().await;
    let file = exported(&archive).await;
    let other = elsewhere();

    other.import(file.as_slice(), Import::default()).await.unwrap();

    let snapshots = all(&other, "s").await;
    let states: Vec<_> = snapshots
        .iter()
        .filter_map(|snapshot| snapshot.state.as_ref())
        .collect();
    let (first, tenth) = (&states[0].messages, &states[9].messages);
    assert_eq!(first.shared_prefix(tenth), first.len());
    assert!(Arc::ptr_eq(
        states[0].custom.as_ref().unwrap(),
        states[9].custom.as_ref().unwrap()
    ));
}

#[tokio::test]
async fn a_session_can_come_back_beside_itself() {
    let (_, archive) = rich().await;
    let before = all(&archive, "s").await;
    let file = exported(&archive).await;

    let how = Import::default().into_session("t");
    archive.import(file.as_slice(), how).await.unwrap();

    let copies = all(&archive, "t").await;
    assert_eq!(all(&archive, "s").await, before);
    assert_eq!(copies.len(), before.len());
    for (original, copy) in before.iter().zip(&copies) {
        assert_ne!(original.snapshot_id, copy.snapshot_id);
        assert_eq!(
            (&original.labels, original.orphaned, &original.extra),
            (&copy.labels, copy.orphaned, &copy.extra)
        );
        let messages = |snapshot: &Snapshot| snapshot.state.as_ref().map(|state| state.messages.clone());
        assert_eq!(messages(original), messages(copy));
    }
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced() {
    let (store, archive) = rich().await;
    let before = all(&archive, "s").await;
    let file = exported(&archive).await;
    let good = archive.tree("s").await.unwrap();
    let good = good
        .snapshots()
        .iter()
        .rfind(|snapshot| snapshot.status == SnapshotStatus::Completed && !snapshot.orphaned);
    go_on(&scribe(store), &good.unwrap().snapshot_id, "since then").await;
    let moved_on = all(&archive, "s").await;

    let refused = archive
        .import(file.as_slice(), Import::default())
        .await
        .unwrap_err();
    let untouched = all(&archive, "s").await;
    let mut cut = file.clone();
    cut.truncate(file.len() / 2);
    let damaged = archive
        .import(cut.as_slice(), Import::default().replacing())
        .await
        .unwrap_err();
    let still_untouched = all(&archive, "s").await;
    let replaced = archive
        .import(file.as_slice(), Import::default().replacing())
        .await
        .unwrap();

    assert_eq!(refused.status(), Status::AlreadyExists);
    assert_eq!(damaged.status(), Status::InvalidArgument);
    assert_eq!((&untouched, &still_untouched), (&moved_on, &moved_on));
    assert_eq!(replaced.snapshots, 14);
    assert_eq!(all(&archive, "s").await, before);
    let sessions = archive.sessions(&SessionQuery::default()).await.unwrap();
    assert_eq!(sessions.items.len(), 1, "nothing is left of the way");
}

#[tokio::test]
async fn a_snapshot_that_is_in_another_session_is_not_taken_over() {
    let (_, archive) = rich().await;
    let file = exported(&archive).await;
    let other = MemoryStore::new();
    put(
        &other,
        Snapshot::new("left behind".into(), "theirs".into(), Timestamp::UNIX_EPOCH),
    )
    .await;
    let other = Archive::of(other, Scope::default());

    let error = other
        .import(file.as_slice(), Import::default())
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::AlreadyExists);
    assert_eq!(other.tree("s").await.unwrap_err().status(), Status::NotFound);
    assert_eq!(
        other.get("left behind").await.unwrap().session_id,
        Some("theirs".into())
    );
}

#[tokio::test]
async fn a_file_with_any_mistake_leaves_no_snapshot() {
    type Spoil = fn(&mut Vec<Value>);
    let (_, archive) = rich().await;
    let good = lines(&exported(&archive).await);
    let spoilt: [(&str, Spoil); 18] = [
        ("nothing", |lines| lines.clear()),
        ("another file", |lines| lines[0] = json!({"hello": "world"})),
        ("another format", |lines| lines[0]["format"] = json!("zip")),
        ("a newer version", |lines| {
            lines[0] = json!({"format": "everturn-session", "version": 2, "session": {}});
        }),
        ("an unknown field", |lines| lines[0]["compressed"] = json!(true)),
        ("an empty name", |lines| lines[0]["sessionId"] = json!("")),
        ("no end", |lines| drop(lines.pop())),
        ("no rows", |lines| drop(lines.drain(1..lines.len() - 1))),
        ("a snapshot too few", |lines| drop(lines.remove(3))),
        ("a last snapshot too few", |lines| {
            drop(lines.remove(lines.len() - 2));
        }),
        ("more after the end", |lines| lines.push(json!({"row": {}}))),
        ("a snapshot twice", |lines| {
            let snapshot = lines[2].clone();
            lines.insert(3, snapshot);
        }),
        ("a stranger's row", |lines| {
            lines[2]["row"]["snapshot"]["sessionId"] = json!("t");
        }),
        ("a base to come", |lines| {
            lines[3]["row"]["base"]["row"] = json!(7);
        }),
        ("a base without a state", |lines| {
            lines[3]["row"]["base"]["row"] = json!(0);
        }),
        ("a base too short", |lines| {
            lines[3]["row"]["base"]["messages"] = json!(1_000_000);
        }),
        ("a status nobody stores", |lines| {
            lines[2]["row"]["snapshot"]["status"] = json!("expired");
        }),
        ("an unknown field in a row", |lines| {
            lines[2]["row"]["colour"] = json!("green");
        }),
    ];

    for (what, spoil) in spoilt {
        let mut lines = good.clone();
        spoil(&mut lines);
        let other = elsewhere();

        let error = other
            .import(file(&lines).as_slice(), Import::default())
            .await
            .unwrap_err();

        assert_eq!(error.status(), Status::InvalidArgument, "{what}: {error}");
        let left = other.sessions(&SessionQuery::default()).await.unwrap();
        assert!(left.items.is_empty(), "{what}");
    }
}

#[tokio::test]
async fn a_file_cut_anywhere_is_refused() {
    let (_, archive) = rich().await;
    let file = exported(&archive).await;
    let step = file.len() / 40;

    for length in (0..file.len() - 1).step_by(step) {
        let other = elsewhere();
        let error = other
            .import(&file[..length], Import::default())
            .await
            .unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{length} bytes: {error}");
        assert!(
            other
                .sessions(&SessionQuery::default())
                .await
                .unwrap()
                .items
                .is_empty()
        );
    }
}

#[tokio::test]
async fn a_newer_version_is_refused_with_advice() {
    let newer = b"{\"format\":\"everturn-session\",\"version\":7}\n".as_slice();

    let error = elsewhere().import(newer, Import::default()).await.unwrap_err();

    assert_eq!(
        error.message(),
        "line 1 of the export: it was written in version 7 of the form, and this program reads version 1"
    );
}

#[tokio::test]
async fn a_store_that_fails_on_the_way_keeps_nothing() {
    let (_, archive) = rich().await;
    let file = exported(&archive).await;
    let store = FaultyStore::default();
    store.fail_saves(true);
    let other = Archive::of(store.clone(), Scope::default());

    let error = other
        .import(file.as_slice(), Import::default())
        .await
        .unwrap_err();
    store.fail_saves(false);

    assert_eq!(error.status(), Status::ResourceExhausted);
    assert!(other.import(file.as_slice(), Import::default()).await.is_ok());
}
