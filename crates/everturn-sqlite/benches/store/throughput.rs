//! Committed turns per second of many sessions at once, against SQLite alone doing the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use everturn_agent::{Snapshot, SnapshotId};
use everturn_sqlite::SqliteStore;
use rusqlite::{Connection, params};

use crate::conversation::Conversation;

const SESSIONS: u32 = 64;
const TURNS: u32 = 60;
const ROUNDS: usize = 3;

pub(crate) fn run(runtime: &tokio::runtime::Runtime) {
    println!("throughput: {SESSIONS} sessions at once, durability full, turns of 2 KiB");
    println!(
        "{:>12} {:>16} {:>18} {:>8}",
        "compression", "store turns/s", "bare loop turns/s", "ratio"
    );
    for compressed in [false, true] {
        let (mut store, mut bare) = (Vec::new(), Vec::new());
        // Taken in turns, so that both see the same machine.
        for _ in 0..ROUNDS {
            store.push(runtime.block_on(through_the_store(compressed)));
            bare.push(bare_loop(runtime, compressed));
        }
        let rate = |times: &[Duration]| {
            let best = times.iter().min().expect("some rounds");
            f64::from(SESSIONS * TURNS) / best.as_secs_f64()
        };
        let (store, bare) = (rate(&store), rate(&bare));
        let compression = if compressed { "zstd" } else { "none" };
        println!(
            "{compression:>12} {store:>16.0} {bare:>18.0} {:>8.2}",
            store / bare
        );
    }
}

async fn open(folder: &std::path::Path, compressed: bool) -> SqliteStore {
    let options = SqliteStore::options(folder.join("sessions.db"));
    let options = if compressed {
        options
    } else {
        options.encoding(everturn_sqlite::Encoding::default().without_compression())
    };
    options.open().await.expect("a store")
}

async fn through_the_store(compressed: bool) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(open(folder.path(), compressed).await);
    let start = Instant::now();
    let tasks: Vec<_> = (0..SESSIONS)
        .map(|session| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut conversation = Conversation::new(&format!("session-{session}"), session.into());
                for _ in 0..TURNS {
                    conversation.save_turn(&*store).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a session");
    }
    start.elapsed()
}

/// The statements of a turn, in groups of one turn per session, with everything encoded beforehand.
fn bare_loop(runtime: &tokio::runtime::Runtime, compressed: bool) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    drop(runtime.block_on(open(folder.path(), compressed)));
    let db = Connection::open(folder.path().join("sessions.db")).expect("a connection");
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA foreign_keys = ON;
         PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY",
    )
    .expect("settings");
    db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .expect("stable plans");
    db.set_prepared_statement_cache_capacity(64);
    let mut conversations: Vec<_> = (0..SESSIONS)
        .map(|session| Conversation::new(&format!("session-{session}"), session.into()))
        .collect();
    let encode = |text: String| {
        if compressed {
            zstd::bulk::compress(text.as_bytes(), 1).expect("zstd")
        } else {
            text.into()
        }
    };
    let groups: Vec<Vec<(Snapshot, Vec<Vec<u8>>)>> = (0..TURNS)
        .map(|_| {
            let turns = conversations.iter_mut().map(|conversation| {
                let row = conversation.turn();
                let new = conversation
                    .state
                    .messages
                    .since(conversation.state.messages.len() - 2);
                let bodies = new
                    .map(|message| encode(serde_json::to_string(message).expect("JSON")))
                    .collect();
                (row, bodies)
            });
            turns.collect()
        })
        .collect();

    let start = Instant::now();
    for (turn, group) in groups.iter().enumerate() {
        db.execute_batch("BEGIN IMMEDIATE").expect("a transaction");
        for (session, (row, bodies)) in group.iter().enumerate() {
            db.prepare_cached("SAVEPOINT piece")
                .and_then(|mut sql| sql.execute([]))
                .expect("a savepoint");
            turn_of(&db, i64::try_from(session).expect("few") + 1, turn, row, bodies).expect("a turn");
            db.prepare_cached("RELEASE piece")
                .and_then(|mut sql| sql.execute([]))
                .expect("a release");
        }
        db.execute_batch("COMMIT").expect("a commit");
    }
    start.elapsed()
}

fn turn_of(
    db: &Connection,
    key: i64,
    turn: usize,
    row: &Snapshot,
    bodies: &[Vec<u8>],
) -> rusqlite::Result<()> {
    let name = row.session_id.as_ref().expect("a session").as_str();
    let (id, nanos) = (
        row.snapshot_id.as_str(),
        i64::try_from(row.created_at.as_nanosecond()).expect("a time"),
    );
    let exists = |sql: &str, params: &[&dyn rusqlite::ToSql]| db.prepare_cached(sql)?.exists(params);
    exists("SELECT * FROM snapshot WHERE scope = 1 AND id = ?1", &[&id])?;
    if turn == 0 {
        db.prepare_cached("INSERT OR IGNORE INTO scope (key, name) VALUES (1, 'global')")?
            .execute([])?;
        db.prepare_cached("INSERT INTO session (key, scope, name) VALUES (?1, 1, ?2)")?
            .execute((key, name))?;
        db.prepare_cached("INSERT INTO lineage (key, base, open) VALUES (?1, 0, 1)")?
            .execute([key])?;
    } else {
        let parent = row.parent_id.as_ref().expect("a parent").as_str();
        exists("SELECT * FROM snapshot WHERE scope = 1 AND id = ?1", &[&parent])?;
        exists(
            "SELECT key FROM message WHERE key >= ?1 AND key < ?2 ORDER BY key DESC",
            &[&(key << 24), &((key + 1) << 24)],
        )?;
    }
    for (position, body) in bodies.iter().enumerate() {
        let message = (key << 24) + i64::try_from(turn * 2 + position).expect("few");
        db.prepare_cached("INSERT INTO message (key, cuts, body) VALUES (?1, 0, ?2)")?
            .execute((message, body))?;
    }
    exists("SELECT key FROM session WHERE scope = 1 AND name = ?1", &[&name])?;
    let tip: Option<(i64, String)> = db
        .prepare_cached("SELECT created_at, id FROM snapshot WHERE session = ?1 ORDER BY created_at DESC, id DESC LIMIT 1")?
        .query_map([key], |row| Ok((row.get(0)?, row.get(1)?)))?
        .next()
        .transpose()?;
    db.prepare_cached(
        "INSERT INTO snapshot (scope, id, session, parent, created_at, updated_at, status, turn, orphaned, lineage, up_to, named) \
         VALUES (1, ?1, ?2, ?3, ?4, ?4, 'completed', ?5, 0, ?2, ?6, 1)",
    )?
    .execute(params![id, key, row.parent_id.as_ref().map(SnapshotId::as_str), nanos, turn, turn * 2 + 2])?;
    if let Some((created_at, id)) = tip {
        db.prepare_cached("DELETE FROM tip WHERE scope = 1 AND created_at = ?1 AND id = ?2")?
            .execute((created_at, id))?;
    }
    let sql = "INSERT INTO tip (scope, created_at, id, session) VALUES (1, ?1, ?2, ?3)";
    db.prepare_cached(sql)?.execute((nanos, id, key))?;
    Ok(())
}
