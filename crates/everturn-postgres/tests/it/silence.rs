//! A database that accepts connections and does not answer: calls end by their deadline, and report unknown
//! outcomes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_agent::store::{
    Detail, Expense, Journal, JournalKey, JournalRecord, LockRequest, Precondition, SAVE_UNKNOWN,
    SessionStore, SnapshotQuery, TurnAccount, TurnLocks, UsageLedger, UsageTotal,
};
use everturn_agent::{Agent, AgentReply, AgentSession, Budget, IdempotencyKey, Limits, agent, custom_agent};
use everturn_ai::{Message, Replay, Tool};
use everturn_core::{Context, Error, Registry, Status};
use everturn_postgres::PostgresStore;
use everturn_testkit::{Reply, ScriptedModel, eventually};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::proxy::Gate;
use crate::support::{Way, get, new_schema, options, put, row, scope};

const PATIENCE: Duration = Duration::from_secs(2);

/// A store behind a gate, and another store on the same tables.
struct Fixture {
    gate: Gate,
    store: PostgresStore,
    direct: PostgresStore,
}

impl Fixture {
    async fn new() -> Option<Self> {
        let url = Way::Direct.url()?;
        let config: tokio_postgres::Config = url.parse().unwrap();
        let port = config.get_ports()[0];
        let gate = Gate::start(port).await;
        let behind = url.replace(&format!(":{port}/"), &format!(":{}/", gate.port));
        assert_ne!(behind, url);
        let schema = new_schema();
        // Every other limit is left as it is: each is longer than the patience.
        let store = options(&behind, &schema).patience(PATIENCE).without_listening();
        let store = store.open().await.unwrap();
        let direct = options(&url, &schema).without_listening().open().await.unwrap();
        Some(Self { gate, store, direct })
    }
}

fn assert_in_time(begun: Instant, what: &str) {
    let (taken, limit) = (begun.elapsed(), PATIENCE.mul_f64(1.5));
    assert!(
        taken < limit,
        "{what} took {taken:?} with a patience of {PATIENCE:?}"
    );
}

/// Calls of every kind. Some find connections that were used before, others have to open theirs.
fn calls(store: &PostgresStore) -> Vec<(&'static str, BoxFuture<'_, Result<(), Error>>)> {
    let key = || JournalKey::new("s".into(), "t");
    let record = JournalRecord {
        sequence: 0,
        body: json!(1),
    };
    let condition = Precondition::unfollowed(Some("first".into()));
    let lock = LockRequest::new("s".into(), "turn".into(), condition, Duration::from_mins(1));
    let mut expense = Expense::default();
    expense.turn = Some((TurnAccount::new(key(), None), UsageTotal::default()));
    vec![
        (
            "get",
            async {
                store
                    .get(&scope(), &"first".into(), Detail::Whole)
                    .await
                    .map(drop)
            }
            .boxed(),
        ),
        (
            "latest",
            async { store.latest(&scope(), &"s".into(), Detail::Whole).await.map(drop) }.boxed(),
        ),
        (
            "list",
            async {
                let query = SnapshotQuery::of("s".into());
                store.list(&scope(), &query).await.map(drop)
            }
            .boxed(),
        ),
        (
            "commit",
            async { put(store, row("second", "s", 2)).await.map(drop) }.boxed(),
        ),
        (
            "append",
            async move { store.append(&scope(), &key(), record, None).await }.boxed(),
        ),
        (
            "take",
            async move { store.take(&scope(), &lock).await.map(drop) }.boxed(),
        ),
        (
            "spend",
            async move { store.spend(&scope(), &expense).await.map(drop) }.boxed(),
        ),
    ]
}

#[tokio::test]
async fn every_call_to_a_silent_database_ends_by_its_deadline() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    put(&fixture.store, row("first", "s", 1)).await.unwrap();
    fixture.gate.close();

    let timed = |(name, call): (&'static str, BoxFuture<'static, Result<(), Error>>)| async move {
        let begun = Instant::now();
        let error = call.await.unwrap_err();
        assert_in_time(begun, name);
        assert_eq!(error.status(), Status::Unavailable, "{name}: {error}");
    };
    // More at once than there are connections.
    let store: &'static PostgresStore = Box::leak(Box::new(fixture.store.clone()));
    join_all(calls(store).into_iter().chain(calls(store)).map(timed)).await;
}

#[tokio::test]
async fn a_save_that_was_carried_out_and_not_answered_is_reported_as_unknown() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let (store, gate) = (&fixture.store, &fixture.gate);
    put(store, row("first", "s", 1)).await.unwrap();
    gate.hold_answers();

    let begun = Instant::now();
    let unknown = put(store, row("second", "s", 2)).await.unwrap_err();

    assert_in_time(begun, "the save");
    assert!(unknown.is(SAVE_UNKNOWN), "{unknown}");
    assert_eq!(unknown.status(), Status::Unavailable);
    assert!(unknown.message().contains("'second'"), "{unknown}");
    assert!(get(&fixture.direct, "second").await.is_some());
    gate.open();
    assert!(get(store, "second").await.is_some());
}

/// An agent that counts its answers. The gate changes at the end of its second turn.
fn parrot(store: &PostgresStore, gate: &Arc<Gate>, change: fn(&Gate)) -> Agent {
    let (turns, gate) = (Arc::new(AtomicUsize::new(0)), Arc::clone(gate));
    custom_agent(&Registry::new(), "parrot", move |session: AgentSession| {
        let (turns, gate) = (Arc::clone(&turns), Arc::clone(&gate));
        async move {
            session
                .run(move |turn| {
                    let number = turns.fetch_add(1, Ordering::Relaxed) + 1;
                    turn.add_message(Message::model(format!("answer {number}")));
                    if number == 2 {
                        change(&gate);
                    }
                    std::future::ready(Ok(()))
                })
                .await?;
            Ok(session.result())
        }
    })
    .store(store.clone())
    .define()
    .unwrap()
}

async fn say(agent: &Agent, text: &str, key: &str) -> Result<AgentReply, Error> {
    let context = Context::new().with_extension(Arc::new(IdempotencyKey::new(key)));
    agent.chat().resume("s").context(context).run(text).await
}

async fn texts(store: &PostgresStore) -> Vec<String> {
    let tip = store.latest(&scope(), &"s".into(), Detail::Whole).await;
    let messages = tip.unwrap().unwrap().state.unwrap().messages;
    messages
        .iter()
        .map(|message| message.text().into_owned())
        .collect()
}

#[tokio::test]
async fn a_turn_that_was_saved_and_not_answered_is_returned_when_its_call_is_repeated() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let gate = Arc::new(fixture.gate);
    let agent = parrot(&fixture.store, &gate, Gate::hold_answers);
    say(&agent, "one", "a").await.unwrap();

    let begun = Instant::now();
    let unknown = say(&agent, "two", "b").await.unwrap_err();
    let taken = begun.elapsed();
    gate.open();
    let repeated = say(&agent, "two", "b").await.unwrap();
    let next = say(&agent, "two", "c").await.unwrap();

    // The answer waits for its lock to be released, for two seconds at most.
    assert!(
        taken < PATIENCE.mul_f64(1.5) + Duration::from_secs(2),
        "{taken:?}"
    );
    let details = unknown.details().unwrap();
    assert_eq!(details["reason"], "outcome-unknown");
    assert_eq!(
        (&details["requestId"], &details["sessionId"]),
        (&json!("b"), &json!("s"))
    );
    assert_eq!(repeated.text(), "answer 2");
    assert_eq!(details["snapshotId"], json!(repeated.snapshot_id()));
    assert_eq!(next.text(), "answer 3");
    let all = ["one", "answer 1", "two", "answer 2", "two", "answer 3"];
    assert_eq!(texts(&fixture.direct).await, all);
}

#[tokio::test]
async fn a_turn_whose_save_arrives_late_or_never_is_in_the_session_once() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let gate = Arc::new(fixture.gate);
    let agent = parrot(&fixture.store, &gate, Gate::close);
    say(&agent, "one", "a").await.unwrap();

    let unknown = say(&agent, "two", "b").await.unwrap_err();
    // The statements sent before arrive now, the save and the release of its lock in any order.
    gate.open();
    // The lock of the first attempt may still be held, or its save arrive at this moment.
    let mut repeated = say(&agent, "two", "b").await;
    eventually("the repeated turn is not aborted", async || {
        let is_aborted = matches!(&repeated, Err(error) if error.status() == Status::Aborted);
        if is_aborted {
            repeated = say(&agent, "two", "b").await;
        }
        !is_aborted
    })
    .await;
    let repeated = repeated.unwrap();

    assert_eq!(unknown.details().unwrap()["reason"], "outcome-unknown");
    let texts = texts(&fixture.direct).await;
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert_eq!((texts[2].as_str(), texts[3].as_str()), ("two", &*repeated.text()));
}

#[tokio::test]
async fn a_turn_that_the_database_leaves_alone_ends_soon_after_its_first_failure() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let (registry, gate) = (Registry::new(), Arc::new(fixture.gate));
    ScriptedModel::new()
        .reply(Reply::tool("book", json!({})))
        .otherwise(|_| Reply::text("Booked."))
        .register(&registry, "scripted")
        .unwrap();
    let closed = Arc::clone(&gate);
    let book = Tool::new("book", "Books.", move |_: Value, _| {
        closed.close();
        async { Ok("booked") }
    })
    .with_replay(Replay::Once);
    let budget = Budget::new().tool_calls(100);
    let desk = agent(&registry, "desk")
        .model("scripted")
        .tool(book)
        .store(fixture.store.clone())
        .limits(
            Limits::new()
                .per_turn(budget)
                .per_session(budget)
                .per_tenant(budget),
        )
        .define()
        .unwrap();

    let begun = Instant::now();
    let error = desk.chat().resume("s").run("Book.").await.unwrap_err();
    let taken = begun.elapsed();
    gate.open();
    // What the turn sent may arrive now, and its lock lapses or is released.
    eventually("the session goes on", async || {
        desk.chat().resume("s").run("Thanks.").await.is_ok()
    })
    .await;

    assert_eq!(error.status(), Status::Unavailable, "{error}");
    assert!(
        taken < PATIENCE.mul_f64(1.5) + Duration::from_secs(2),
        "{taken:?}"
    );
}
