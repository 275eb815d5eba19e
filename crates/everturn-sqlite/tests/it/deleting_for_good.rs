//! Deleted data is gone from every query at once, and from every file after compaction.

use std::sync::Arc;

use everturn_agent::store::{Deletion, SessionStore};
use everturn_agent::{Artifact, Snapshot};
use everturn_ai::{History, Message, Part};
use serde_json::json;

use crate::support;
use crate::support::{Fixture, files, get, latest, put, row, scope, session_ids, state_of, texts};

const CANARY: &str = "canary-7f3a9c";

fn is_anywhere(fixture: &Fixture, needle: &str) -> bool {
    let contains = |content: &[u8]| {
        content
            .windows(needle.len())
            .any(|window| window == needle.as_bytes())
    };
    files(fixture.folder.path())
        .iter()
        .any(|file| contains(&std::fs::read(file).unwrap()))
}

/// A row with the canary in everything it has.
fn rich(id: &str, session: &str, second: i64) -> Snapshot {
    let mut row = row(id, session, second);
    let mut state = state_of(&[CANARY]);
    state.messages.push(Message::user(Part::media(format!(
        "data:image/png;base64,{CANARY}{}",
        "A".repeat(40_000)
    ))));
    state.custom = Some(Arc::new(
        json!({"secret": CANARY, "padding": "word ".repeat(800)}),
    ));
    state.artifacts = Arc::new(vec![
        Artifact::text("plan", CANARY),
        Artifact::text("long", CANARY.repeat(4_000)),
    ]);
    state.prompt_input = Some(Arc::new(json!(CANARY)));
    row.state = Some(state);
    row.note = Some(CANARY.to_owned());
    row.labels = vec![CANARY.to_owned()];
    row.extra.insert("more".to_owned(), json!(CANARY));
    row
}

#[tokio::test]
async fn after_compaction_no_file_contains_text_of_a_deleted_session() {
    let fixture = Fixture::new().await;
    let options = everturn_sqlite::SqliteStore::options(fixture.path())
        .encoding(everturn_sqlite::Encoding::default().without_compression());
    let plain = options.open().await.unwrap();
    put(&plain, row("kept", "other", 1)).await.unwrap();
    for second in 0..20 {
        put(&plain, rich(&format!("{CANARY}-{second}"), CANARY, second))
            .await
            .unwrap();
    }
    assert!(is_anywhere(&fixture, CANARY), "the test can see what is stored");

    let deleted = plain
        .delete(&scope(), &Deletion::Session(CANARY.into()))
        .await
        .unwrap();
    plain.vacuum().await.unwrap();

    assert_eq!(deleted, 20);
    assert!(!is_anywhere(&fixture, CANARY));
    assert!(get(&plain, "kept").await.is_some());
    let found = plain.verify().await.unwrap();
    assert!(found.is_clean(), "{:?}", found.problems);
    assert_eq!(
        (found.snapshots, found.messages, found.documents, found.blobs),
        (1, 0, 0, 0)
    );
}

/// When SQLite balances pages, it leaves copies of rows in their unused space.
#[tokio::test]
async fn interleaved_sessions_are_erased_without_compaction() {
    let fixture = Fixture::new().await;
    let options = everturn_sqlite::SqliteStore::options(fixture.path())
        .encoding(everturn_sqlite::Encoding::default().without_compression());
    let plain = options.open().await.unwrap();
    let canary = |session: i64| format!("canary-{session:03}-");
    for turn in 0..6 {
        for session in 0..25 {
            let mut row = row(&format!("{session}-{turn}"), &format!("s{session}"), turn);
            let text = format!(
                "{}{}",
                canary(session),
                "x".repeat(usize::try_from(session * turn * 5).unwrap())
            );
            row.note = Some(text.clone());
            row.state = Some(state_of(&[&text]));
            put(&plain, row).await.unwrap();
        }
    }

    // In an order that has nothing to do with the one in which they were written.
    let gone: Vec<i64> = (0..20).map(|number| (number * 7) % 25).collect();
    for session in &gone {
        let session = Deletion::Session(format!("s{session}").into());
        plain.delete(&scope(), &session).await.unwrap();
    }

    let left: Vec<_> = gone
        .iter()
        .filter(|session| is_anywhere(&fixture, &canary(**session)))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(is_anywhere(&fixture, &canary((20 * 7) % 25)), "the others stay");
}

#[tokio::test]
async fn a_deleted_tenant_leaves_nothing() {
    let fixture = Fixture::new().await;
    let options = everturn_sqlite::SqliteStore::options(fixture.path())
        .encoding(everturn_sqlite::Encoding::default().without_compression());
    let plain = options.open().await.unwrap();
    let other = everturn_agent::store::Scope::new("other");
    for (tenant, id) in [(&scope(), CANARY), (&scope(), "b"), (&other, "kept")] {
        let save = support::set(rich(id, id, 1));
        let none = everturn_agent::store::Precondition::None;
        plain.save(tenant, Some(&id.into()), none, save).await.unwrap();
    }
    plain.delete(&other, &Deletion::Tenant).await.unwrap();
    assert!(is_anywhere(&fixture, CANARY), "the test can see what is stored");

    let deleted = plain.delete(&scope(), &Deletion::Tenant).await.unwrap();

    assert_eq!(deleted, 2);
    assert!(!is_anywhere(&fixture, CANARY));
    assert!(plain.tenants(None).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_tenants_name_goes_with_its_last_session() {
    let fixture = Fixture::new().await;
    let tenant = everturn_agent::store::Scope::new(CANARY);
    let save = support::set(row("a", "s", 1));
    fixture
        .store
        .save(
            &tenant,
            Some(&"a".into()),
            everturn_agent::store::Precondition::None,
            save,
        )
        .await
        .unwrap();

    fixture
        .store
        .delete(&tenant, &Deletion::Snapshots(vec!["a".into()]))
        .await
        .unwrap();
    fixture.store.vacuum().await.unwrap();

    assert!(!is_anywhere(&fixture, CANARY));
}

#[tokio::test]
async fn deleting_a_row_deletes_the_data_that_only_it_contained() {
    let fixture = Fixture::new().await;
    let mut history: History = [Message::user("shared")].into_iter().collect();
    let mut state = state_of(&[]);
    state.messages = history.clone();
    let mut first = row("first", "s", 1);
    first.state = Some(state.clone());
    put(&fixture.store, first.clone()).await.unwrap();
    history.push(Message::user(CANARY));
    state.messages = history;
    let mut second = row("second", "s", 2);
    second.state = Some(state);
    second.parent_id = Some("first".into());
    put(&fixture.store, second).await.unwrap();

    fixture
        .store
        .delete(&scope(), &Deletion::Snapshots(vec!["second".into()]))
        .await
        .unwrap();
    fixture.store.vacuum().await.unwrap();

    assert!(!is_anywhere(&fixture, CANARY));
    assert_eq!(get(&fixture.store, "first").await, Some(first));
    assert_eq!(fixture.store.verify().await.unwrap().messages, 1);
}

#[tokio::test]
async fn data_that_other_rows_share_stays_and_children_keep_their_state() {
    let fixture = Fixture::new().await;
    let mut state = state_of(&["one", "two"]);
    let mut parent = row("parent", "s", 1);
    parent.state = Some(state.clone());
    put(&fixture.store, parent).await.unwrap();
    state.messages.push(Message::user("three"));
    let mut child = row("child", "s", 2);
    child.parent_id = Some("parent".into());
    child.state = Some(state);
    put(&fixture.store, child).await.unwrap();

    fixture
        .store
        .delete(
            &scope(),
            &Deletion::Snapshots(vec!["parent".into(), "parent".into(), "missing".into()]),
        )
        .await
        .unwrap();

    let fixture = fixture.reopened().await;
    let child = get(&fixture.store, "child").await.unwrap();
    assert_eq!(texts(&child.state.unwrap().messages), ["one", "two", "three"]);
    assert!(fixture.store.verify().await.unwrap().is_clean());
}

#[tokio::test]
async fn a_deleted_document_does_not_live_on_under_a_patch() {
    let fixture = Fixture::new().await;
    let document = |secret: &str| {
        let mut state = state_of(&["hello"]);
        state.custom = Some(Arc::new(
            json!({"padding": "word ".repeat(2_000), "secret": secret}),
        ));
        state
    };
    let mut first = row("first", "s", 1);
    first.state = Some(document(CANARY));
    put(&fixture.store, first).await.unwrap();
    let mut second = row("second", "s", 2);
    second.parent_id = Some("first".into());
    second.state = Some(document("none"));
    put(&fixture.store, second.clone()).await.unwrap();

    fixture
        .store
        .delete(&scope(), &Deletion::Snapshots(vec!["first".into()]))
        .await
        .unwrap();
    fixture.store.vacuum().await.unwrap();

    let fixture = fixture.reopened().await;
    assert!(!is_anywhere(&fixture, CANARY));
    assert_eq!(get(&fixture.store, "second").await, Some(second));
    assert!(fixture.store.verify().await.unwrap().is_clean());
}

#[tokio::test]
async fn data_that_a_rewrite_replaced_is_deleted() {
    let fixture = Fixture::new().await;
    let mut row = rich("a", "s", 1);
    row.status = everturn_agent::SnapshotStatus::Pending;
    put(&fixture.store, row.clone()).await.unwrap();

    let plain = support::row("a", "s", 1);
    put(&fixture.store, plain.clone()).await.unwrap();
    fixture.store.vacuum().await.unwrap();

    assert!(!is_anywhere(&fixture, CANARY));
    assert_eq!(get(&fixture.store, "a").await, Some(plain));
}

#[tokio::test]
async fn continuing_a_history_whose_end_was_deleted_stores_it_again() {
    let fixture = Fixture::new().await;
    let other = support::open(fixture.folder.path()).await;
    let mut first = row("first", "s", 1);
    first.state = Some(state_of(&["one"]));
    put(&fixture.store, first.clone()).await.unwrap();
    let mut ours = first.state.clone().unwrap();
    ours.messages.push(Message::user("ours"));
    let mut second = row("second", "s", 2);
    second.state = Some(ours.clone());
    put(&fixture.store, second).await.unwrap();

    // Another handle deletes the end and puts something else where it was.
    other
        .delete(&scope(), &Deletion::Snapshots(vec!["second".into()]))
        .await
        .unwrap();
    let mut theirs = get(&other, "first").await.unwrap().state.unwrap();
    theirs.messages.push(Message::user("theirs"));
    let mut third = row("third", "s", 3);
    third.state = Some(theirs);
    put(&other, third).await.unwrap();
    ours.messages.push(Message::user("more of ours"));
    let mut fourth = row("fourth", "s", 4);
    fourth.state = Some(ours);
    put(&fixture.store, fourth).await.unwrap();

    drop(other);
    let fixture = fixture.reopened().await;
    let texts_of = |row: Option<Snapshot>| texts(&row.unwrap().state.unwrap().messages);
    assert_eq!(texts_of(get(&fixture.store, "third").await), ["one", "theirs"]);
    assert_eq!(
        texts_of(get(&fixture.store, "fourth").await),
        ["one", "ours", "more of ours"]
    );
    assert!(fixture.store.verify().await.unwrap().is_clean());
}

#[tokio::test]
async fn a_session_without_rows_is_not_listed() {
    let fixture = Fixture::new().await;
    put(&fixture.store, row("a", "s", 1)).await.unwrap();

    assert_eq!(
        fixture
            .store
            .delete(&scope(), &Deletion::Session("s".into()))
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        fixture
            .store
            .delete(&scope(), &Deletion::Session("s".into()))
            .await
            .unwrap(),
        0
    );

    assert_eq!(latest(&fixture.store, "s").await, None);
    assert!(session_ids(&fixture.store).await.is_empty());
}
