//! Snapshot policies and transforms know who calls, and may be written over the custom state's type.

use everturn_agent::store::{MemoryStore, Scope, SessionStore, SnapshotQuery};
use everturn_agent::{SnapshotEvent, SnapshotPolicy, Turn};
use everturn_core::Context;

use crate::support::{Counter, handling};

fn counting() -> everturn_agent::AgentBuilder<Counter> {
    handling("counting", |turn: Turn<Counter>| async move {
        turn.update_custom(|counter| counter.counter += 1);
        Ok(())
    })
}

fn caller(name: &str) -> Context {
    Context::new().with_value("auth", name)
}

async fn count_of(store: &MemoryStore, session: &str) -> usize {
    let query = SnapshotQuery::of(session.into());
    let rows = store.list(&Scope::default(), &query).await.unwrap().items;
    rows.iter().filter(|row| !row.is_head()).count()
}

#[tokio::test]
async fn a_policy_decides_by_the_caller_and_the_typed_state() {
    let store = MemoryStore::new();
    let is_bob = |context: &Context| context.auth().is_some_and(|auth| auth == "bob");
    let by_caller = counting()
        .snapshots(SnapshotPolicy::when(move |moment| {
            moment.event == SnapshotEvent::TurnEnd && !is_bob(moment.context)
        }))
        .store(store.clone())
        .define()
        .unwrap();
    let by_both = counting()
        .snapshots_when(move |moment, counter, _| {
            moment.event == SnapshotEvent::TurnEnd && is_bob(moment.context) && counter.counter == 1
        })
        .store(store.clone())
        .define()
        .unwrap();

    for (name, session) in [("ann", "of ann"), ("bob", "of bob")] {
        by_caller
            .chat()
            .context(caller(name))
            .resume(session)
            .run("a")
            .await
            .unwrap();
    }
    for (name, session) in [("ann", "ann's"), ("bob", "bob's")] {
        by_both
            .chat()
            .context(caller(name))
            .resume(session)
            .run("a")
            .await
            .unwrap();
    }

    assert_eq!(
        (count_of(&store, "of ann").await, count_of(&store, "of bob").await),
        (1, 0)
    );
    assert_eq!(
        (count_of(&store, "ann's").await, count_of(&store, "bob's").await),
        (0, 1)
    );
}

#[tokio::test]
async fn a_policy_over_json_can_read_the_custom_state_as_its_type() {
    let store = MemoryStore::new();
    let agent = counting()
        .snapshots(SnapshotPolicy::when(|moment| {
            let counter = moment.custom::<Counter>().map_or(0, |counter| counter.counter);
            moment.event == SnapshotEvent::TurnEnd && counter % 2 == 0
        }))
        .store(store.clone())
        .define()
        .unwrap();
    let mut connection = agent.connect(everturn_agent::AgentInit::session("s"));

    for text in ["a", "b", "c", "d"] {
        connection.send(text).await.unwrap();
    }
    connection.output().await.unwrap();

    assert_eq!(count_of(&store, "s").await, 2);
}

#[tokio::test]
async fn a_state_transform_may_be_written_over_the_typed_state_and_the_caller() {
    let agent = counting()
        .state_transform(|state, context| {
            let mut counter: Counter = state.custom_as()?;
            if context.auth().is_none_or(|auth| auth != "ann") {
                counter.counter = 0;
            }
            Ok(Some(state.with_custom(&counter)?))
        })
        .store(MemoryStore::new())
        .define()
        .unwrap();
    agent
        .chat()
        .context(caller("ann"))
        .resume("s")
        .run("a")
        .await
        .unwrap();

    let seen_by = async |name: &str| {
        let chat = agent
            .chat()
            .context(caller(name))
            .resume("s")
            .open()
            .await
            .unwrap();
        chat.custom().unwrap().counter
    };

    assert_eq!((seen_by("ann").await, seen_by("bob").await), (1, 0));
}
