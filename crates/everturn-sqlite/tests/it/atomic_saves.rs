//! A save is one step among concurrent saves.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use everturn_agent::store::{Deletion, Mutation, Precondition, SessionStore};
use everturn_agent::{SessionState, SnapshotStatus};
use everturn_ai::Message;
use everturn_core::{Error, Reason, Status};
use everturn_sqlite::SqliteStore;
use serde_json::{Value, json};

use crate::support::{Fixture, get, open, put, row, scope, set, state_of};

fn increment() -> Mutation {
    Mutation::new(|existing| {
        let mut row = existing.cloned().unwrap_or_else(|| row("counter", "s", 1));
        row.status = SnapshotStatus::Pending;
        let count = row.extra.get("count").and_then(Value::as_u64).unwrap_or(0);
        row.extra.insert("count".to_owned(), json!(count + 1));
        Ok(Some(row))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_of_sixteen_concurrent_writers_is_lost() {
    let fixture = Fixture::new().await;

    let writers = (0..16).map(|_| {
        let store = fixture.store.clone();
        tokio::spawn(async move {
            for _ in 0..25 {
                store
                    .save(&scope(), Some(&"counter".into()), Precondition::None, increment())
                    .await
                    .unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }

    assert_eq!(
        get(&fixture.store, "counter").await.unwrap().extra["count"],
        json!(400)
    );
}

#[tokio::test]
async fn of_sixteen_turns_from_one_tip_exactly_one_commits() {
    let fixture = Fixture::new().await;
    put(&fixture.store, row("tip", "s", 1)).await.unwrap();

    let turns = (0..16).map(|turn| {
        let store = fixture.store.clone();
        tokio::spawn(async move {
            let id = format!("turn-{turn}");
            let precondition = Precondition::Tip(Some("tip".into()));
            store
                .save(
                    &scope(),
                    Some(&id.as_str().into()),
                    precondition,
                    set(row(&id, "s", 2)),
                )
                .await
        })
    });
    let mut committed = 0;
    for turn in turns.collect::<Vec<_>>() {
        match turn.await.unwrap() {
            Ok(_) => committed += 1,
            Err(error) => assert_eq!(error.status(), Status::Aborted),
        }
    }

    assert_eq!(committed, 1);
}

#[tokio::test]
async fn a_save_that_fails_or_panics_takes_nothing_of_its_neighbours_with_it() {
    let fixture = Fixture::new().await;
    let failing = Mutation::new(|_| Err(Error::resource_exhausted("no pots left")));
    let panicking = Mutation::new(|_| panic!("burnt"));

    let save = |id: &'static str, mutation: Mutation| {
        let store = fixture.store.clone();
        async move {
            store
                .save(&scope(), Some(&id.into()), Precondition::None, mutation)
                .await
        }
    };
    let (one, failed, two, panicked, three) = tokio::join!(
        save("one", set(row("one", "s", 1))),
        save("failing", failing),
        save("two", set(row("two", "s", 2))),
        save("panicking", panicking),
        save("three", set(row("three", "s", 3))),
    );

    assert_eq!(failed.unwrap_err().status(), Status::ResourceExhausted);
    assert!(panicked.unwrap_err().is(Reason::PANIC));
    for (saved, id) in [(one, "one"), (two, "two"), (three, "three")] {
        assert_eq!(saved.unwrap().unwrap().snapshot_id.as_str(), id);
        assert!(get(&fixture.store, id).await.is_some());
    }
    assert!(fixture.store.verify().await.unwrap().is_clean());
}

/// A change of the counter whose first calls wait until the test releases them.
fn waiting_increment(calls: usize) -> (Mutation, Receiver<()>, Sender<()>) {
    let ((reached, begun), (go_on, told)) = (channel(), channel());
    let waits = Mutex::new((calls, reached, told));
    let mutation = Mutation::new(move |existing| {
        let mut waits = waits.lock().unwrap();
        if waits.0 > 0 {
            waits.0 -= 1;
            waits.1.send(()).unwrap();
            waits.2.recv().unwrap();
        }
        increment().apply(existing)
    });
    (mutation, begun, go_on)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_mutation_runs_while_the_database_is_locked_and_one_that_lost_its_race_runs_again() {
    let rounds = 3;
    let fixture = Fixture::new().await;
    let other = open(fixture.folder.path()).await;
    let count = |store: SqliteStore, mutation| async move {
        let id = "counter".into();
        store
            .save(&scope(), Some(&id), Precondition::None, mutation)
            .await
    };
    let (mutation, begun, go_on) = waiting_increment(rounds);
    let slow = tokio::spawn(count(fixture.store.clone(), mutation));

    for _ in 0..rounds {
        begun.recv().unwrap();
        // The slow mutation is running, and the write lock is free.
        let lock = rusqlite::Connection::open(fixture.path()).unwrap();
        lock.busy_timeout(Duration::ZERO).unwrap();
        lock.execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
        count(other.clone(), increment()).await.unwrap();
        go_on.send(()).unwrap();
    }

    slow.await.unwrap().unwrap();
    let counter = get(&fixture.store, "counter").await.unwrap();
    assert_eq!(counter.extra["count"], json!(rounds + 1));
    assert!(fixture.store.verify().await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_is_prepared_again_when_what_it_builds_on_is_deleted_meanwhile() {
    let fixture = Fixture::new().await;
    let other = open(fixture.folder.path()).await;
    let long = "leek ".repeat(2_000);
    let custom = json!({ "recipe": "x".repeat(3_000), "long": long, "step": 1 });
    let mut first = row("first", "s", 1);
    first.state = Some(SessionState {
        custom: Some(custom.into()),
        ..state_of(&["hello", &long])
    });
    put(&fixture.store, first.clone()).await.unwrap();
    let mut second = row("second", "s", 2);
    second.parent_id = Some("first".into());
    let mut state = first.state.clone().unwrap();
    state.messages.push(Message::model("a message more"));
    second.state = Some(state);
    let (reached, begun) = channel();
    let (go_on, told) = channel::<()>();
    let (waits, written) = (Mutex::new(told), second.clone());
    let mutation = Mutation::new(move |_| {
        reached.send(()).unwrap();
        // Closed after the first call.
        let _ = waits.lock().unwrap().recv();
        Ok(Some(written.clone()))
    });
    let store = fixture.store.clone();
    let save = tokio::spawn(async move {
        store
            .save(&scope(), Some(&"second".into()), Precondition::None, mutation)
            .await
    });

    begun.recv().unwrap();
    other
        .delete(&scope(), &Deletion::Session("s".into()))
        .await
        .unwrap();
    drop(go_on);

    save.await.unwrap().unwrap();
    let fixture = fixture.reopened().await;
    assert_eq!(get(&fixture.store, "second").await.unwrap().state, second.state);
    let verification = fixture.store.verify().await.unwrap();
    assert!(verification.is_clean(), "{verification:?}");
}

#[tokio::test]
async fn a_mutation_that_returns_nothing_writes_nothing() {
    let fixture = Fixture::new().await;

    let saved = fixture
        .store
        .save(
            &scope(),
            Some(&"x".into()),
            Precondition::None,
            Mutation::new(|_| Ok(None)),
        )
        .await;

    assert_eq!(saved.unwrap(), None);
    assert_eq!(get(&fixture.store, "x").await, None);
}

#[tokio::test]
async fn an_id_is_made_where_none_is_given_and_wins_where_one_is() {
    let fixture = Fixture::new().await;

    let fresh = fixture
        .store
        .save(&scope(), None, Precondition::None, set(row("ignored", "s", 1)))
        .await
        .unwrap()
        .unwrap();
    let given = fixture
        .store
        .save(
            &scope(),
            Some(&"given".into()),
            Precondition::None,
            set(row("ignored", "s", 2)),
        )
        .await
        .unwrap();

    assert_eq!(fresh.snapshot_id.as_str().len(), 36);
    assert_eq!(given.unwrap().snapshot_id.as_str(), "given");
    assert_eq!(get(&fixture.store, "ignored").await, None);
}
