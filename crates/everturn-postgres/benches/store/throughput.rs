//! Committed turns per second of many sessions at once, against the same statements alone and against SQLite.

use std::sync::Arc;
use std::time::{Duration, Instant};

use everturn_agent::store::{LockGrant, LockRequest, Precondition, Scope, SessionStore, TurnLocks};
use everturn_agent::{Snapshot, SnapshotId};
use everturn_sqlite::SqliteStore;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use crate::conversation::{Conversation, Schema};

const SESSIONS: u32 = 64;
const TURNS: u32 = 60;
const ROUNDS: usize = 3;
const CONNECTIONS: usize = 10;

pub(crate) fn run(runtime: &tokio::runtime::Runtime, url: &str) {
    println!("throughput: {SESSIONS} sessions at once, {CONNECTIONS} connections, turns of 2 KiB, zstd");
    let mut times = [const { Vec::new() }; 5];
    // Taken in turns, so that all see the same machine.
    for _ in 0..ROUNDS {
        times[0].push(runtime.block_on(through_the_store(url, false)));
        times[1].push(runtime.block_on(bare_loop(url, false)));
        times[2].push(runtime.block_on(through_the_store(url, true)));
        times[3].push(runtime.block_on(bare_loop(url, true)));
        times[4].push(runtime.block_on(sqlite()));
    }
    let [store, bare, locked, bare_locked, sqlite] = times.map(|times| {
        let best = times.into_iter().min().expect("some rounds");
        f64::from(SESSIONS * TURNS) / best.as_secs_f64()
    });
    println!(
        "{:>24} {:>14} {:>18} {:>8}",
        "", "store turns/s", "bare loop turns/s", "ratio"
    );
    println!(
        "{:>24} {store:>14.0} {bare:>18.0} {:>8.2}",
        "commit",
        store / bare
    );
    println!(
        "{:>24} {locked:>14.0} {bare_locked:>18.0} {:>8.2}",
        "turn lock and commit",
        locked / bare_locked
    );
    println!(
        "{:>24} {sqlite:>14.0} {:>18} {:>8.2}",
        "SQLite, one process",
        "",
        store / sqlite
    );
}

async fn talk(store: Arc<dyn SessionStore>, locked: bool) -> Duration {
    let start = Instant::now();
    let tasks: Vec<_> = (0..SESSIONS)
        .map(|session| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut conversation = Conversation::new(&format!("session-{session}"), session.into());
                for _ in 0..TURNS {
                    if locked {
                        locked_turn(&mut conversation, &*store).await;
                    } else {
                        conversation.save_turn(&*store).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a session");
    }
    start.elapsed()
}

async fn locked_turn(conversation: &mut Conversation, store: &dyn SessionStore) {
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

/// A turn with everything encoded beforehand.
struct Encoded {
    row: Snapshot,
    bodies: Vec<Vec<u8>>,
}

/// The statements of a session, one after the other, by one of the connections.
async fn bare_loop(url: &str, locked: bool) -> Duration {
    let schema = Schema::new(url);
    // For its tables.
    drop(schema.open(|options| options).await);
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Bare::prepare(schema.connect().await).await);
    }
    let clients = Arc::new(tokio::sync::Mutex::new(clients));
    let free = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
    let sessions: Vec<Vec<Encoded>> = (0..SESSIONS).map(encoded).collect();
    let start = Instant::now();
    let tasks: Vec<_> = sessions
        .into_iter()
        .enumerate()
        .map(|(number, turns)| {
            let (clients, free) = (Arc::clone(&clients), Arc::clone(&free));
            tokio::spawn(async move {
                let session = Uuid::from_u128(number as u128);
                for (turn, encoded) in (0_i64..).zip(turns) {
                    let _permit = free.acquire().await.expect("it is never closed");
                    let client = clients.lock().await.pop().expect("one per permit");
                    if locked {
                        client.lock(session, &encoded).await;
                    }
                    client.turn(session, turn, &encoded, locked).await;
                    clients.lock().await.push(client);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a session");
    }
    let took = start.elapsed();
    schema.drop().await;
    took
}

fn encoded(session: u32) -> Vec<Encoded> {
    let mut conversation = Conversation::new(&format!("session-{session}"), session.into());
    let turn = |_| {
        let row = conversation.turn();
        let messages = &conversation.state.messages;
        let body = |message| {
            let text = serde_json::to_vec(message).expect("JSON");
            let mut body = vec![1; 5];
            body.extend(zstd::bulk::compress(&text, 1).expect("zstd"));
            body
        };
        let bodies = messages.since(messages.len() - 2).map(body).collect();
        Encoded { row, bodies }
    };
    (0..TURNS).map(turn).collect()
}

/// A connection with prepared statements, which a pooler would not allow.
struct Bare {
    client: Client,
    begin: Statement,
    turn: Statement,
    lock: Statement,
    unlock: Statement,
}

impl Bare {
    async fn prepare(client: Client) -> Self {
        let rest = "line AS (INSERT INTO lineage (tenant, session, number, base) SELECT 1, $1, 1, 0 FROM cas WHERE $6 = 0), \
             said AS (INSERT INTO message (tenant, session, lineage, number, cuts, body) \
               SELECT 1, $1, 1, new.* FROM cas, unnest($2::int[], $3::int[], $4::bytea[]) AS new) \
             INSERT INTO snapshot (tenant, session, scope, id, parent, created_at, updated_at, status, turn, orphaned, lineage, \
               up_to, named) SELECT 1, $1, 'global', $5, $8, $7, $7, 'completed', $6, false, 1, $6::int * 2 + 2, true FROM cas";
        let begin = format!(
            "WITH cas AS (INSERT INTO session (tenant, key, version, tip_at, touched_at, tip, scope, name, tokens) \
             VALUES (1, $1, $6::bigint + 1, $7, 0, $5, 'global', $5, ARRAY[$6::bigint]) RETURNING 1), {rest}"
        );
        let turn = format!(
            "WITH cas AS (UPDATE session SET version = version + 1, tip_at = $7, tip = $5, \
             tokens = (ARRAY[$6::bigint] || tokens)[1:8] \
             WHERE tenant = 1 AND key = $1 AND version = $6 RETURNING 1), {rest}"
        );
        let lock = "INSERT INTO turn_lock (tenant, session, place, turn, until) VALUES (1, $1, $2, $3, 0)";
        let unlock = "DELETE FROM turn_lock WHERE tenant = 1 AND session = $1 AND turn = $2";
        Self {
            begin: client.prepare(&begin).await.expect("a statement"),
            turn: client.prepare(&turn).await.expect("a statement"),
            lock: client.prepare(lock).await.expect("a statement"),
            unlock: client.prepare(unlock).await.expect("a statement"),
            client,
        }
    }

    async fn lock(&self, session: Uuid, encoded: &Encoded) {
        let place = encoded
            .row
            .parent_id
            .as_ref()
            .map_or("", SnapshotId::as_str)
            .as_bytes();
        let turn = encoded.row.snapshot_id.as_str().as_bytes();
        let locked = self.client.execute(&self.lock, &[&session, &place, &turn]).await;
        assert_eq!(locked.expect("a lock"), 1);
    }

    async fn turn(&self, session: Uuid, turn: i64, encoded: &Encoded, locked: bool) {
        let row = &encoded.row;
        let first = i32::try_from(turn).expect("few") * 2;
        let (numbers, cuts) = ([first, first + 1], [0, 0]);
        let id = row.snapshot_id.as_str().as_bytes();
        let parent = row.parent_id.as_ref().map(|id| id.as_str().as_bytes());
        let nanos = i64::try_from(row.created_at.as_nanosecond()).expect("a time");
        let statement = if turn == 0 { &self.begin } else { &self.turn };
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 8] = [
            &session,
            &&numbers[..],
            &&cuts[..],
            &encoded.bodies,
            &id,
            &turn,
            &nanos,
            &parent,
        ];
        let written = self.client.execute(statement, &params);
        if locked {
            // In one round trip, as the store's single statement.
            let unlocked = [&session as &(dyn tokio_postgres::types::ToSql + Sync), &id];
            let unlocked = self.client.execute(&self.unlock, &unlocked);
            let (written, unlocked) = tokio::join!(written, unlocked);
            assert_eq!((written.expect("a turn"), unlocked.expect("a lock")), (1, 1));
        } else {
            assert_eq!(written.await.expect("a turn"), 1);
        }
    }
}
