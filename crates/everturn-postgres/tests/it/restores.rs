//! A database that goes back to an earlier point under a running program: what is stored is shown, not what
//! is remembered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use everturn_agent::store::{Detail, SessionStore, SnapshotQuery};
use everturn_agent::{Agent, AgentInit, Snapshot};
use everturn_ai::Message;
use everturn_postgres::PostgresStore;
use everturn_testkit::eventually;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::server::Server;
use crate::support::{Fixture, get, options, parrot, put, row, scope, sql, state_of};

/// The tables that hold conversations.
const TABLES: &[&str] = &[
    "session",
    "snapshot",
    "lineage",
    "message",
    "document",
    "blob",
    "message_blob",
    "document_blob",
    "journal",
    "ledger",
];

/// Copies the tables of a store into another schema.
async fn back_up(fixture: &Fixture) {
    let schema = &fixture.schema;
    let copy =
        |table: &&str| format!("CREATE TABLE \"{schema}_copy\".{table} AS TABLE \"{schema}\".{table};");
    let copies: String = TABLES.iter().map(copy).collect();
    sql(
        &fixture.url,
        &format!("CREATE SCHEMA \"{schema}_copy\"; {copies}"),
    )
    .await;
}

/// Puts the copies in the place of the tables' contents.
async fn restore(fixture: &Fixture) {
    let schema = &fixture.schema;
    let replace = |table: &&str| {
        format!(
            "DELETE FROM \"{schema}\".{table}; INSERT INTO \"{schema}\".{table} SELECT * FROM \"{schema}_copy\".{table};"
        )
    };
    let replaced: String = TABLES.iter().map(replace).collect();
    let script = format!("BEGIN; DELETE FROM \"{schema}\".turn_lock; {replaced} COMMIT;");
    sql(&fixture.url, &script).await;
}

/// A turn of a session that contains the name of its writer.
fn turn(number: i64, who: &str, before: Option<&Snapshot>) -> Snapshot {
    let mut next = row(&format!("turn-{number}"), "s", number);
    let mut state = before
        .and_then(|row| row.state.clone())
        .unwrap_or_else(|| state_of(&[]));
    state.messages.push(Message::user(format!("{who} {number}")));
    state.custom = Some(Arc::new(json!({"who": who, "kept": "salt ".repeat(600)})));
    next.parent_id = before.map(|row| row.snapshot_id.clone());
    next.state = Some(state);
    next
}

async fn write(store: &PostgresStore, who: &str, first: &Snapshot) -> Snapshot {
    let mut last = first.clone();
    for number in 2..5 {
        last = turn(number, who, Some(&last));
        put(store, last.clone()).await.unwrap();
    }
    last
}

#[tokio::test]
async fn rows_that_others_wrote_after_a_restore_are_not_taken_for_those_before() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let here = &fixture.store;
    let first = turn(1, "both", None);
    put(here, first.clone()).await.unwrap();
    back_up(&fixture).await;
    let lost = write(here, "lost", &first).await;
    restore(&fixture).await;
    let there = fixture.reopened().await;
    let first_there = get(&there, "turn-1").await.unwrap();
    let stored = write(&there, "stored", &first_there).await;

    for id in ["turn-1", "turn-2", "turn-3", "turn-4"] {
        assert_eq!(get(here, id).await, get(&there, id).await, "{id}");
    }
    let latest = here.latest(&scope(), &"s".into(), Detail::Whole).await.unwrap();

    assert_eq!(latest, Some(stored.clone()));
    // A history that this process still has is stored in addition to the others, not confused with theirs.
    let mut branch = turn(5, "branch", Some(&lost));
    branch.parent_id = Some("turn-1".into());
    put(here, branch.clone()).await.unwrap();
    let reopened = fixture.reopened().await;
    assert_eq!(get(&reopened, "turn-5").await.unwrap().state, branch.state);
    assert_eq!(get(&reopened, "turn-4").await.unwrap().state, stored.state);
    assert_eq!(reopened.verify().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
async fn a_lost_row_is_missing_although_it_is_cached() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let agent = parrot(&fixture.store);
    agent.chat().resume("s").run("one").await.unwrap();
    back_up(&fixture).await;
    let lost = agent.chat().resume("s").run("two").await.unwrap();
    let mut connection = agent.connect(AgentInit::session("s"));
    restore(&fixture).await;

    connection.send("three").await.unwrap();
    connection.close();
    let refused = connection.output().await;
    let resumed = agent.chat().resume("s").run("four").await.unwrap();
    let gone = agent
        .chat()
        .snapshot(lost.snapshot_id().unwrap().clone())
        .run("five")
        .await;

    assert!(
        refused.is_err() || refused.unwrap().error.is_some(),
        "its snapshot is not stored"
    );
    assert!(gone.is_err());
    let reopened = fixture.reopened().await;
    let stored = get(&reopened, resumed.snapshot_id().unwrap().as_str())
        .await
        .unwrap();
    let texts: Vec<String> = texts(&stored);
    assert_eq!(texts, ["one", "heard", "four", "heard"]);
    assert_eq!(reopened.verify().await.unwrap().problems, Vec::<String>::new());
}

fn texts(snapshot: &Snapshot) -> Vec<String> {
    let messages = &snapshot.state.as_ref().unwrap().messages;
    messages
        .iter()
        .map(|message| message.text().into_owned())
        .collect()
}

const SESSIONS: usize = 6;

/// Runs turns of a session until the test stops it, and ignores refused ones.
async fn talk(agent: Agent, session: String, who: usize, turns: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let said = agent
            .chat()
            .resume(session.as_str())
            .run(format!("{who} says {number}"))
            .await;
        turns.fetch_add(usize::from(said.is_ok()), Ordering::Relaxed);
    }
}

async fn until(turns: &AtomicUsize, count: usize) {
    let enough = turns.load(Ordering::Relaxed) + count;
    eventually("turns are committed", async || {
        turns.load(Ordering::Relaxed) >= enough
    })
    .await;
}

/// Returns all snapshots of a session as a store shows them.
async fn shown(store: &PostgresStore, session: &str) -> Vec<Snapshot> {
    let query = SnapshotQuery::of(session.into()).whole().limit(1_000);
    let mut snapshots = store.list(&scope(), &query).await.unwrap().items;
    snapshots.extend(
        store
            .latest(&scope(), &session.into(), Detail::Whole)
            .await
            .unwrap(),
    );
    snapshots
}

/// Two processes that share every session, and talk until they are stopped.
struct Load {
    url: String,
    stores: [PostgresStore; 2],
    turns: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    talks: Vec<JoinHandle<()>>,
}

impl Load {
    async fn start(url: String) -> Self {
        let stores = [Self::open(&url).await, Self::open(&url).await];
        let (turns, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let mut talks = Vec::new();
        for session in 0..SESSIONS {
            for (who, store) in stores.iter().enumerate() {
                let (turns, stop) = (Arc::clone(&turns), Arc::clone(&stop));
                talks.push(tokio::spawn(talk(
                    parrot(store),
                    format!("s{session}"),
                    who,
                    turns,
                    stop,
                )));
            }
        }
        Self {
            url,
            stores,
            turns,
            stop,
            talks,
        }
    }

    async fn open(url: &str) -> PostgresStore {
        let options = options(url, "everturn").patience(Duration::from_secs(30));
        options.open().await.unwrap()
    }

    async fn turns(&self, count: usize) {
        until(&self.turns, count).await;
    }

    /// Stops, and compares what the processes show with what is stored.
    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for talk in self.talks {
            talk.await.unwrap();
        }
        let reopened = Self::open(&self.url).await;
        for session in 0..SESSIONS {
            let session = format!("s{session}");
            let expected = shown(&reopened, &session).await;
            for store in &self.stores {
                assert_eq!(shown(store, &session).await, expected, "{session}");
            }
        }
        assert_eq!(reopened.verify().await.unwrap().problems, Vec::<String>::new());
    }
}

async fn on_server<T: Send + 'static>(
    server: &Arc<Server>,
    work: impl FnOnce(&Server) -> T + Send + 'static,
) -> T {
    let server = Arc::clone(server);
    tokio::task::spawn_blocking(move || work(&server)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restored_under_load_is_shown_as_it_is() {
    let Some(server) = Server::start() else {
        return;
    };
    let server = Arc::new(server);
    let load = Load::start(server.url()).await;

    load.turns(40).await;
    on_server(&server, Server::back_up).await;
    load.turns(120).await;
    on_server(&server, Server::restore).await;
    // Fewer than were lost, so that what is remembered is longer than what is stored.
    load.turns(24).await;

    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_lags_behind_and_takes_over_under_load_is_shown_as_it_is() {
    let Some(server) = Server::start() else {
        return;
    };
    let server = Arc::new(server);
    let standby = Arc::new(on_server(&server, Server::standby).await);
    let (first, second) = (server.port(), standby.port());
    let load = Load::start(format!(
        "postgres://everturn@127.0.0.1:{first},127.0.0.1:{second}/postgres?target_session_attrs=read-write&sslmode=disable"
    ))
    .await;

    load.turns(40).await;
    let position = sql(&server.url(), "SELECT pg_current_wal_lsn()").await.unwrap();
    let has_followed = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'");
    eventually("the standby follows", async || {
        sql(&standby.url(), &has_followed).await.as_deref() == Some("t")
    })
    .await;
    // It receives nothing more.
    sql(&standby.url(), "ALTER SYSTEM SET primary_conninfo = ''").await;
    sql(&standby.url(), "SELECT pg_reload_conf()").await;
    eventually("the standby lags behind", async || {
        sql(&standby.url(), "SELECT count(*) FROM pg_stat_wal_receiver")
            .await
            .as_deref()
            == Some("0")
    })
    .await;
    load.turns(120).await;
    let lost = sql(&server.url(), COUNT).await;
    on_server(&server, Server::crash).await;
    let left = sql(&standby.url(), COUNT).await;
    on_server(&standby, Server::promote).await;
    load.turns(24).await;

    assert_ne!(lost, left, "turns were lost");
    load.end().await;
}

const COUNT: &str = "SELECT count(*) FROM everturn.snapshot";
