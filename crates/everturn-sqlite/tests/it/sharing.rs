//! A message is stored once: turns, branches and images cost what they add.

use std::sync::Arc;

use everturn_agent::store::{Deletion, SessionStore};
use everturn_agent::{Artifact, SessionState, Snapshot, SnapshotId};
use everturn_ai::{Message, Part};
use everturn_sqlite::{Durability, SqliteStore};
use serde_json::{Value, json};

use crate::support::{Fixture, at, bytes_on_disk, get, noise, path, prose, put, row, scope, state_of};

/// Adds turns of 2 KB to a session and returns its last row.
async fn talk(
    store: &SqliteStore,
    session: &str,
    turns: i64,
    text: impl Fn(&mut fastrand::Rng) -> String,
) -> Snapshot {
    let mut random = fastrand::Rng::with_seed(7);
    let mut state = state_of(&[]);
    let mut last: Option<Snapshot> = None;
    for turn in 0..turns {
        let text = text(&mut random);
        state.messages.push(Message::user(&text[..200]));
        state.messages.push(Message::model(&text[200..]));
        let mut row = Snapshot::new(SnapshotId::generate(), session.into(), at(turn));
        row.parent_id = last.map(|last| last.snapshot_id);
        row.state = Some(state.clone());
        last = Some(put(store, row).await.unwrap());
    }
    last.unwrap()
}

async fn size(fixture: &Fixture) -> u64 {
    fixture.store.checkpoint().await.unwrap();
    bytes_on_disk(fixture.folder.path())
}

async fn uncompressed() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteStore::options(path(folder.path()))
        .durability(Durability::Normal)
        .encoding(everturn_sqlite::Encoding::default().without_compression());
    Fixture {
        store: options.open().await.unwrap(),
        folder,
    }
}

#[tokio::test]
async fn a_long_session_costs_bytes_linear_in_its_text() {
    let fixture = uncompressed().await;
    let empty = size(&fixture).await;
    let text = |random: &mut fastrand::Rng| noise(random, 2_048);

    talk(&fixture.store, "first", 200, text).await;
    let half = size(&fixture).await - empty;
    talk(&fixture.store, "second", 400, text).await;
    let whole = size(&fixture).await - empty - half;

    assert!(
        whole <= 400 * 2_048 * 5 / 2,
        "{whole} bytes for 400 turns of 2 KiB"
    );
    assert!(
        whole <= half * 2 + half / 5,
        "{half} bytes for 200 turns, {whole} for 400"
    );
}

#[tokio::test]
async fn prose_costs_less_than_its_text() {
    let fixture = Fixture::new().await;
    let empty = size(&fixture).await;

    talk(&fixture.store, "s", 400, |random| prose(random, 2_048)).await;

    let bytes = size(&fixture).await - empty;
    assert!(bytes < 400 * 2_048, "{bytes} bytes for {} of text", 400 * 2_048);
}

#[tokio::test]
async fn rows_read_back_share_what_they_have_in_common() {
    let fixture = Fixture::new().await;
    let last = talk(&fixture.store, "s", 50, |random| prose(random, 2_048)).await;
    let fixture = fixture.reopened().await;

    let last = get(&fixture.store, last.snapshot_id.as_str()).await.unwrap();
    let before = get(&fixture.store, last.parent_id.as_ref().unwrap().as_str())
        .await
        .unwrap();

    let (long, short) = (last.state.unwrap().messages, before.state.unwrap().messages);
    assert_eq!((long.len(), short.len()), (100, 98));
    assert_eq!(long.shared_prefix(&short), 98);
}

#[tokio::test]
async fn continuing_a_session_after_reopening_appends() {
    let fixture = Fixture::new().await;
    let last = talk(&fixture.store, "s", 50, |random| prose(random, 2_048)).await;
    let fixture = fixture.reopened().await;
    let before = fixture.store.verify().await.unwrap().messages;

    let mut next = get(&fixture.store, last.snapshot_id.as_str()).await.unwrap();
    next.parent_id = Some(std::mem::replace(&mut next.snapshot_id, "next".into()));
    next.state
        .as_mut()
        .unwrap()
        .messages
        .push(Message::user("One more?"));
    put(&fixture.store, next).await.unwrap();

    assert_eq!(fixture.store.verify().await.unwrap().messages, before + 1);
}

#[tokio::test]
async fn a_state_that_came_by_another_way_is_recognised_by_its_content() {
    let fixture = Fixture::new().await;
    let last = talk(&fixture.store, "s", 50, |random| prose(random, 2_048)).await;

    // As from a client: equal content that shares nothing.
    let wire = serde_json::to_value(last.state.as_ref().unwrap()).unwrap();
    let mut state: SessionState = serde_json::from_value(wire).unwrap();
    state.messages = state
        .messages
        .iter()
        .take(60)
        .cloned()
        .chain([Message::user("Summarised.")])
        .collect();
    let mut next = row("next", "s", 99);
    next.parent_id = Some(last.snapshot_id);
    next.state = Some(state.clone());
    put(&fixture.store, next).await.unwrap();

    assert_eq!(fixture.store.verify().await.unwrap().messages, 101);
    let fixture = fixture.reopened().await;
    assert_eq!(get(&fixture.store, "next").await.unwrap().state, Some(state));
}

#[tokio::test]
async fn a_thousand_forks_of_a_long_session_stay_under_a_megabyte() {
    let fixture = Fixture::new().await;
    let last = talk(&fixture.store, "s", 400, |random| prose(random, 2_048)).await;
    let before = size(&fixture).await;

    for fork in 0..1_000 {
        let mut branch = Snapshot::new(
            SnapshotId::generate(),
            everturn_agent::SessionId::generate(),
            at(1_000 + fork),
        );
        let mut state = last.state.clone().unwrap();
        state.messages = state
            .messages
            .truncate_to(usize::try_from(fork % 800).unwrap() + 1);
        state.messages.push(Message::user("And if not?"));
        branch.parent_id = Some(last.snapshot_id.clone());
        branch.state = Some(state);
        put(&fixture.store, branch).await.unwrap();
    }

    let bytes = size(&fixture).await - before;
    assert!(bytes < 1_000_000, "{bytes} bytes for 1,000 forks");
    assert!(fixture.store.verify().await.unwrap().is_clean());
}

#[tokio::test]
async fn a_large_image_is_stored_once_for_all_its_references() {
    let fixture = Fixture::new().await;
    let image = format!(
        "data:image/png;base64,{}",
        noise(&mut fastrand::Rng::with_seed(1), 10 * 1024 * 1024)
    );

    for session in 0..2 {
        let mut state = state_of(&[]);
        state.messages.push(Message::user(Part::media(image.as_str())));
        state.artifacts = Arc::new(vec![Artifact::new("picture", Part::media(image.as_str()))]);
        for turn in 0..100 {
            state.messages.push(Message::model("A leek."));
            let mut row = row(&format!("{session}-{turn}"), &format!("s{session}"), turn);
            row.state = Some(state.clone());
            put(&fixture.store, row).await.unwrap();
        }
    }

    let bytes = size(&fixture).await;
    assert!(
        bytes < 11 * 1024 * 1024,
        "{bytes} bytes for an image of 10 MiB in 200 snapshots"
    );
    let found = fixture.store.verify().await.unwrap();
    assert_eq!((found.blobs, found.is_clean()), (1, true), "{:?}", found.problems);
    let read = get(&fixture.store, "1-99").await.unwrap().state.unwrap();
    assert_eq!(read.messages.first().unwrap().media().next().unwrap().url, image);
    fixture
        .store
        .delete(&scope(), &Deletion::Session("s0".into()))
        .await
        .unwrap();
    assert_eq!(fixture.store.verify().await.unwrap().blobs, 1);
}

fn pantry(counts: &[u64]) -> Value {
    let shelves = counts.iter().enumerate();
    shelves
        .map(|(shelf, count)| {
            (
                format!("shelf {shelf}"),
                json!({"jars": count, "label": "pickled leeks"}),
            )
        })
        .collect()
}

#[tokio::test]
async fn a_large_document_that_changes_a_little_costs_a_little() {
    let fixture = uncompressed().await;
    let mut counts = vec![0_u64; 500];
    let document = serde_json::to_string(&pantry(&counts)).unwrap().len() as u64;
    let empty = size(&fixture).await;
    let mut parent: Option<SnapshotId> = None;
    let mut rows = Vec::new();

    for turn in 0..100_usize {
        counts[turn * 3] += 1;
        let mut row = row(&format!("r{turn:03}"), "s", i64::try_from(turn).unwrap());
        row.parent_id = parent.replace(row.snapshot_id.clone());
        let mut state = state_of(&["hello"]);
        state.custom = Some(Arc::new(pantry(&counts)));
        row.state = Some(state);
        rows.push(put(&fixture.store, row).await.unwrap());
    }

    let bytes = size(&fixture).await - empty;
    assert!(
        bytes < document * 100 / 8,
        "{bytes} bytes for 100 versions of {document}"
    );
    let fixture = fixture.reopened().await;
    for row in rows {
        assert_eq!(get(&fixture.store, row.snapshot_id.as_str()).await, Some(row));
    }
    assert!(fixture.store.verify().await.unwrap().is_clean());
}

#[tokio::test]
async fn a_document_that_did_not_change_is_not_written_again() {
    let fixture = Fixture::new().await;
    let counts = vec![3_u64; 100];
    let mut parent: Option<SnapshotId> = None;

    for turn in 0..20 {
        let mut row = row(&format!("r{turn}"), "s", turn);
        row.parent_id = parent.replace(row.snapshot_id.clone());
        let mut state = state_of(&["hello"]);
        // Another value every time, of equal content.
        state.custom = Some(Arc::new(pantry(&counts)));
        row.state = Some(state);
        put(&fixture.store, row).await.unwrap();
    }

    let found = fixture.store.verify().await.unwrap();
    assert_eq!((found.documents, found.messages), (1, 1));
}
