//! Committed turns per second of many sessions at once, against the same statements alone and against SQLite.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use everturn_agent::store::{LockGrant, LockRequest, Precondition, Scope, SessionStore, TurnLocks};
use everturn_sqlite::SqliteStore;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Statement};

use crate::conversation::Conversation;
use crate::schema::Schema;
use crate::tap::{Recorded, Tap};

const SESSIONS: u32 = 64;
const TURNS: u32 = 60;
const ROUNDS: usize = 5;
const CONNECTIONS: usize = 10;

pub(crate) fn run(runtime: &tokio::runtime::Runtime, url: &str) {
    println!(
        "throughput: {SESSIONS} sessions at once, {CONNECTIONS} connections, turns of 2 KiB, zstd, best of {ROUNDS}"
    );
    println!(
        "{:>24} {:>14} {:>18} {:>8} {:>18} {:>8}",
        "", "store turns/s", "bare loop turns/s", "ratio", "prepared turns/s", "ratio"
    );
    let mut commits = 0.0;
    for (name, locked) in [("commit", false), ("turn lock and commit", true)] {
        let floor = runtime.block_on(Floor::record(url, locked));
        let mut times = [const { Vec::new() }; 3];
        // Taken in turns, so that all see the same machine.
        for _ in 0..ROUNDS {
            times[0].push(runtime.block_on(through_the_store(url, locked)));
            times[1].push(runtime.block_on(floor.run(Sent::Unnamed)));
            times[2].push(runtime.block_on(floor.run(Sent::Prepared)));
        }
        runtime.block_on(floor.schema.drop());
        let [store, bare, prepared] = times.map(rate);
        println!(
            "{name:>24} {store:>14.0} {bare:>18.0} {:>8.2} {prepared:>18.0} {:>8.2}",
            store / bare,
            store / prepared
        );
        if !locked {
            commits = store;
        }
    }
    let sqlite = rate((0..ROUNDS).map(|_| runtime.block_on(sqlite())).collect());
    println!(
        "{:>24} {sqlite:>14.0} turns/s, the store {:.2} times as many",
        "SQLite, one process",
        commits / sqlite
    );
}

/// Returns the turns per second of the best round.
fn rate(times: Vec<Duration>) -> f64 {
    let best = times.into_iter().min().expect("some rounds");
    f64::from(SESSIONS * TURNS) / best.as_secs_f64()
}

async fn talk(store: Arc<dyn SessionStore>, locked: bool) -> Duration {
    let start = Instant::now();
    let tasks: Vec<_> = (0..SESSIONS)
        .map(|session| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut conversation = Conversation::new(&format!("session-{session}"), session.into());
                for _ in 0..TURNS {
                    take_turn(&mut conversation, &*store, locked).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a session");
    }
    start.elapsed()
}

async fn take_turn(conversation: &mut Conversation, store: &dyn SessionStore, locked: bool) {
    if !locked {
        return conversation.save_turn(store).await;
    }
    let locks: &dyn TurnLocks = store.turn_locks().expect("a store with locks");
    let condition = Precondition::unfollowed(conversation.last.clone());
    let row = conversation.turn();
    let turn = row.snapshot_id.clone();
    let session = conversation.session.as_str().into();
    let request = LockRequest::new(session, turn.clone(), condition.clone(), Duration::from_secs(15));
    let granted = locks.take(&Scope::default(), &request).await.expect("a lock");
    assert_eq!(granted, LockGrant::Held);
    let held = Precondition::Held {
        turn,
        releases: true,
        and: Box::new(condition),
    };
    conversation.save(store, row, held).await;
}

async fn through_the_store(url: &str, locked: bool) -> Duration {
    let schema = Schema::new(url);
    let store = schema.open(|options| options.connections(CONNECTIONS)).await;
    let took = talk(Arc::new(store), locked).await;
    schema.drop().await;
    took
}

async fn sqlite() -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("sessions.db"))
        .await
        .expect("a store");
    talk(Arc::new(store), false).await
}

/// How a bare loop sends its statements.
#[derive(Clone, Copy, PartialEq)]
enum Sent {
    /// As the store does, so that any pooler can carry them.
    Unnamed,
    /// Parsed and planned once per connection, which a pooler in transaction mode would not allow.
    Prepared,
}

/// The statements that the store sends, to be run without the store.
struct Floor {
    schema: Schema,
    /// The statements of every session, in order.
    script: Arc<Vec<Vec<Recorded>>>,
}

impl Floor {
    /// Runs every session on the store, and records the statements that it sends.
    async fn record(url: &str, locked: bool) -> Self {
        let schema = Schema::new(url);
        let tap = Tap::before(url).await;
        let store = schema.open_at(&tap.url, |options| options.connections(1)).await;
        tap.take();
        let mut script = Vec::new();
        for session in 0..SESSIONS {
            let mut conversation = Conversation::new(&format!("session-{session}"), session.into());
            let mut sent = Vec::new();
            for _ in 0..TURNS {
                take_turn(&mut conversation, &store, locked).await;
                let statements = tap.take();
                assert_eq!(statements.len(), if locked { 2 } else { 1 });
                sent.extend(statements);
            }
            script.push(sent);
        }
        Self {
            schema,
            script: Arc::new(script),
        }
    }

    /// Runs every session's statements one after the other, on any of the connections, and all sessions at
    /// once.
    async fn run(&self, sent: Sent) -> Duration {
        let tables = "session, lineage, message, snapshot, turn_lock, turn_queue";
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(Bare::new(self.schema.connect().await, sent));
        }
        let empty = format!("TRUNCATE {tables}");
        clients[0]
            .client
            .batch_execute(&empty)
            .await
            .expect("empty tables");
        let pool = Arc::new((Mutex::new(clients), Semaphore::new(CONNECTIONS)));
        let start = Instant::now();
        let tasks: Vec<_> = (0..self.script.len())
            .map(|session| {
                let (pool, script) = (Arc::clone(&pool), Arc::clone(&self.script));
                tokio::spawn(async move {
                    for statement in &script[session] {
                        let _permit = pool.1.acquire().await.expect("it is never closed");
                        let mut bare = pool.0.lock().expect("a pool").pop().expect("one per permit");
                        assert_eq!(bare.run(statement).await, 1);
                        pool.0.lock().expect("a pool").push(bare);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a session");
        }
        start.elapsed()
    }
}

/// A connection of a bare loop.
struct Bare {
    client: Client,
    sent: Sent,
    prepared: HashMap<String, Statement>,
}

impl Bare {
    fn new(client: Client, sent: Sent) -> Self {
        Self {
            client,
            sent,
            prepared: HashMap::new(),
        }
    }

    /// Runs a statement and returns the number of rows that it answers with.
    async fn run(&mut self, statement: &Recorded) -> usize {
        if self.sent == Sent::Unnamed {
            return statement.run(&self.client).await;
        }
        if !self.prepared.contains_key(&statement.sql) {
            let prepared = statement.prepare(&self.client).await;
            self.prepared.insert(statement.sql.clone(), prepared);
        }
        let prepared = &self.prepared[&statement.sql];
        statement.run_prepared(&self.client, prepared).await
    }
}
