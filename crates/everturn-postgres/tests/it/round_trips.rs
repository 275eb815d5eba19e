//! How many round trips calls take once the store is warm, and that what is remembered is used only while it
//! is true.

use std::time::Duration;

use everturn_agent::store::{
    Deletion, Detail, Journal, JournalGuard, JournalKey, JournalRecord, Lease, LockRequest, Precondition,
    SessionStore, TurnLocks,
};
use everturn_agent::{Agent, AgentConnection, AgentInit, Snapshot, SnapshotId};
use everturn_ai::Message;
use everturn_core::Status;
use everturn_postgres::{PostgresStore, PostgresStoreOptions};
use serde_json::json;

use crate::support::{Fixture, Way, at, get, options, parrot, row, scope, set, sql, state_of};

/// A store without background queries.
async fn quiet() -> Option<Fixture> {
    Fixture::by(Way::Direct, PostgresStoreOptions::without_listening).await
}

async fn save(store: &PostgresStore, row: Snapshot, tip: Option<&str>) {
    let id = row.snapshot_id.clone();
    let tip = Precondition::Tip(tip.map(SnapshotId::from));
    store.save(&scope(), Some(&id), tip, set(row)).await.unwrap();
}

async fn trips<T>(store: &PostgresStore, work: impl Future<Output = T>) -> (T, u64) {
    let before = store.metrics().round_trips;
    let done = work.await;
    (done, store.metrics().round_trips - before)
}

fn turn(number: i64, before: Option<&Snapshot>) -> Snapshot {
    let mut next = row(&format!("turn-{number}"), "s", number);
    let mut state = before
        .and_then(|row| row.state.clone())
        .unwrap_or_else(|| state_of(&[]));
    state.messages.push(Message::user(format!("question {number}")));
    state.messages.push(Message::model(format!("answer {number}")));
    state.custom = Some(std::sync::Arc::new(
        json!({"turn": number, "kept": "salt ".repeat(600)}),
    ));
    next.parent_id = before.map(|row| row.snapshot_id.clone());
    next.created_at = at(number);
    next.state = Some(state);
    next
}

#[tokio::test]
async fn a_turn_of_a_chat_is_one_round_trip_and_a_resumed_one_two() {
    let Some(fixture) = quiet().await else {
        return;
    };
    let store = &fixture.store;
    let first = turn(1, None);
    let ((), begun) = trips(store, save(store, first.clone(), None)).await;
    let second = turn(2, Some(&first));
    let ((), chatted) = trips(store, save(store, second.clone(), Some("turn-1"))).await;

    let resumed = async {
        let tip = store
            .latest(&scope(), &"s".into(), Detail::Whole)
            .await
            .unwrap()
            .unwrap();
        save(store, turn(3, Some(&tip)), Some("turn-2")).await;
    };
    let ((), resumed) = trips(store, resumed).await;

    assert_eq!((begun, chatted, resumed), (1, 1, 2));
}

#[tokio::test]
async fn a_process_that_resumes_after_another_reads_only_what_is_new() {
    let Some(fixture) = quiet().await else {
        return;
    };
    let there = options(&fixture.url, &fixture.schema)
        .without_listening()
        .open()
        .await
        .unwrap();
    let here = &fixture.store;
    let first = turn(1, None);
    save(here, first.clone(), None).await;
    there
        .latest(&scope(), &"s".into(), Detail::Whole)
        .await
        .unwrap()
        .unwrap();
    save(here, turn(2, Some(&first)), Some("turn-1")).await;

    let resumed = async {
        let tip = there
            .latest(&scope(), &"s".into(), Detail::Whole)
            .await
            .unwrap()
            .unwrap();
        save(&there, turn(3, Some(&tip)), Some("turn-2")).await;
    };
    let ((), resumed) = trips(&there, resumed).await;

    // The row, the messages and the document that were not in memory yet, and the commit.
    assert_eq!(resumed, 4);
    let whole = here
        .get(&scope(), &"turn-3".into(), Detail::Whole)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(whole.state.unwrap().messages.len(), 6);
}

#[tokio::test]
async fn a_record_of_a_journal_is_one_round_trip_after_the_first() {
    let Some(fixture) = quiet().await else {
        return;
    };
    let store = &fixture.store;
    save(store, turn(1, None), None).await;
    let key = JournalKey::new("s".into(), "t");
    let guard = JournalGuard::new(
        "turn-2".into(),
        Lease::first(),
        Precondition::Tip(Some("turn-1".into())),
    );
    let append = |sequence: u64| {
        let record = JournalRecord {
            sequence,
            body: json!({"number": sequence}),
        };
        let (guard, key) = (&guard, &key);
        async move { store.append(&scope(), key, record, Some(guard)).await.unwrap() }
    };

    let ((), first) = trips(store, append(0)).await;
    let ((), second) = trips(store, append(1)).await;

    assert_eq!((first, second), (2, 1));
}

async fn say(connection: &mut AgentConnection) {
    connection.send("hello").await.unwrap();
    while let Some(chunk) = connection.next().await {
        if chunk.turn_end.is_some() {
            return;
        }
    }
    panic!("the turn did not end");
}

#[tokio::test]
async fn every_warm_turn_of_an_agent_is_two_round_trips_the_lock_and_the_commit() {
    let Some(fixture) = quiet().await else {
        return;
    };
    let store = &fixture.store;
    let agent = parrot(store);
    let mut connection = agent.connect(AgentInit::session("s"));
    say(&mut connection).await;

    let ((), chatting) = trips(store, say(&mut connection)).await;
    connection.close();
    let output = connection.output().await.unwrap();
    let (by_session, resuming) = trips(store, agent.chat().resume("s").run("again")).await;
    let tip = by_session.unwrap().snapshot_id().unwrap().clone();
    let (by_snapshot, continuing) = trips(store, agent.chat().snapshot(tip.clone()).run("again")).await;
    let by_snapshot = by_snapshot.unwrap();

    assert_eq!((chatting, resuming, continuing), (2, 2, 2));
    assert_eq!(by_snapshot.text(), "heard");
    let last = get(store, by_snapshot.snapshot_id().unwrap().as_str())
        .await
        .unwrap();
    assert_eq!(last.parent_id, Some(tip));
    assert_eq!(last.state.unwrap().messages.len(), 8);
    assert_ne!(output.snapshot_id, last.parent_id);
}

/// An agent of another process, whose store remembers nothing of what happens here.
async fn elsewhere(fixture: &Fixture) -> (PostgresStore, Agent) {
    let store = options(&fixture.url, &fixture.schema).without_listening();
    let store = store.open().await.unwrap();
    let agent = parrot(&store);
    (store, agent)
}

#[tokio::test]
async fn a_session_that_another_process_continued_is_not_resumed_from_memory() {
    let Some(fixture) = quiet().await else {
        return;
    };
    let here = parrot(&fixture.store);
    let (_, there) = elsewhere(&fixture).await;
    here.chat().resume("s").run("one").await.unwrap();

    for _ in 0..3 {
        let earlier = here.chat().resume("s").run("here").await.unwrap();
        let later = there.chat().resume("s").run("there").await.unwrap();
        let branch = here.chat().snapshot(earlier.snapshot_id().unwrap().clone());
        let branch = branch.run("from before").await.unwrap();
        let next = there.chat().snapshot(later.snapshot_id().unwrap().clone());
        let next = next.run("there again").await.unwrap();

        let parent = async |id: Option<&SnapshotId>| {
            let row = get(&fixture.store, id.unwrap().as_str()).await;
            row.unwrap().parent_id
        };
        assert_eq!(parent(later.snapshot_id()).await.as_ref(), earlier.snapshot_id());
        assert_eq!(parent(branch.snapshot_id()).await.as_ref(), earlier.snapshot_id());
        assert_eq!(parent(next.snapshot_id()).await.as_ref(), later.snapshot_id());
        // The next round goes on at the latest of them, wherever it was written.
        let tip = fixture
            .store
            .latest(&scope(), &"s".into(), Detail::Metadata)
            .await;
        let tip = tip.unwrap().unwrap().snapshot_id;
        let resumed = here.chat().resume("s").run("at the tip").await.unwrap();
        assert_eq!(parent(resumed.snapshot_id()).await, Some(tip));
    }
}

#[tokio::test]
async fn a_session_that_another_process_deleted_is_not_resumed_from_memory() {
    let Some(fixture) = quiet().await else {
        return;
    };
    let here = parrot(&fixture.store);
    let (there, _) = elsewhere(&fixture).await;
    let reply = here.chat().resume("s").run("one").await.unwrap();
    there
        .delete(&scope(), &Deletion::Session("s".into()))
        .await
        .unwrap();

    let tip = reply.snapshot_id().unwrap().clone();
    let gone = here.chat().snapshot(tip).run("two").await.unwrap_err();
    let begun = here.chat().resume("s").run("reopened").await.unwrap();

    assert_eq!(gone.status(), Status::NotFound, "{gone}");
    let begun = get(&fixture.store, begun.snapshot_id().unwrap().as_str()).await;
    assert_eq!(begun.unwrap().state.unwrap().messages.len(), 2);
}

#[tokio::test]
async fn a_session_that_another_turn_holds_is_refused_although_it_is_remembered() {
    let Some(fixture) = quiet().await else {
        return;
    };
    let here = parrot(&fixture.store);
    let (there, _) = elsewhere(&fixture).await;
    let reply = here.chat().resume("s").run("one").await.unwrap();
    let tip = reply.snapshot_id().unwrap().clone();
    let condition = Precondition::unfollowed(Some(tip.clone()));
    let request = LockRequest::new("s".into(), "other".into(), condition, Duration::from_mins(1));
    there.take(&scope(), &request).await.unwrap();

    let refused = here.chat().resume("s").run("two").await.unwrap_err();
    there
        .release(&scope(), &"s".into(), &"other".into())
        .await
        .unwrap();
    let next = here.chat().snapshot(tip.clone()).run("two").await.unwrap();

    assert_eq!(refused.status(), Status::Aborted, "{refused}");
    assert!(refused.message().contains("'other'"), "{refused}");
    let next = get(&fixture.store, next.snapshot_id().unwrap().as_str()).await;
    assert_eq!(next.unwrap().parent_id, Some(tip));
}

#[tokio::test]
async fn a_turn_that_cannot_begin_leaves_no_lock_behind() {
    let Some(fixture) = quiet().await else {
        return;
    };
    let here = parrot(&fixture.store);
    here.chat().resume("s").run("one").await.unwrap();

    let refused = here.chat().resume("s").custom(json!({"a": 1})).run("two");
    let refused = refused.await.unwrap_err();
    let locks = format!("SELECT count(*) FROM \"{}\".turn_lock", fixture.schema);
    let left = sql(&fixture.url, &locks).await;

    assert_eq!(refused.status(), Status::FailedPrecondition, "{refused}");
    assert_eq!(left.as_deref(), Some("0"));
}
