//! How many round trips calls take once the store is warm.

use everturn_agent::store::{
    Detail, Journal, JournalGuard, JournalKey, JournalRecord, Lease, Precondition, SessionStore,
};
use everturn_agent::{Agent, AgentConnection, AgentInit, AgentSession, Snapshot, SnapshotId, custom_agent};
use everturn_ai::Message;
use everturn_core::Registry;
use everturn_postgres::{PostgresStore, PostgresStoreOptions};
use serde_json::json;

use crate::support::{Fixture, Way, at, options, row, said, scope, set};

/// A store that sends nothing of its own accord.
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
        .unwrap_or_else(|| said(&[]));
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

/// An agent that answers every message.
fn parrot(store: &PostgresStore) -> Agent {
    custom_agent(&Registry::new(), "parrot", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.add_message(Message::model("heard"));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .store(store.clone())
    .define()
    .unwrap()
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
async fn a_turn_of_an_agent_is_two_round_trips_the_lock_and_the_commit() {
    let Some(fixture) = quiet().await else {
        return;
    };
    let store = &fixture.store;
    let agent = parrot(store);
    let mut connection = agent.connect(AgentInit::session("s"));
    say(&mut connection).await;

    let ((), warm) = trips(store, say(&mut connection)).await;
    connection.close();
    connection.output().await.unwrap();
    let (resumed, resuming) = trips(store, agent.chat().resume("s").run("again")).await;

    assert_eq!(warm, 2);
    assert_eq!(resumed.unwrap().text(), "heard");
    // The tip is read first.
    assert_eq!(resuming, 3);
}
