//! A million sessions in one file, against a hundred.

use std::time::{Duration, Instant};

use everturn_agent::store::{Cursor, Deletion, Detail, Scope, SessionQuery, SessionStore, SnapshotQuery};
use everturn_sqlite::SqliteStore;
use jiff::Timestamp;
use rusqlite::Connection;

use crate::conversation::{Conversation, median};

const ROUNDS: usize = 51;

pub(crate) fn run(runtime: &tokio::runtime::Runtime) {
    println!("many sessions in one file (median of {ROUNDS})");
    let names = [
        "open",
        "latest",
        "sessions",
        "sessions, deep",
        "snapshots",
        "a turn",
        "delete",
    ];
    print!("{:>10}", "sessions");
    for name in names {
        print!(" {name:>15}");
    }
    println!();
    for sessions in [100, 1_000_000] {
        let times = runtime.block_on(measure(sessions));
        print!("{sessions:>10}");
        for time in times {
            print!(" {:>15}", format!("{time:.0?}"));
        }
        println!();
    }
}

/// Makes sessions of one turn each, by SQL: through the store it would take minutes.
fn fill(path: &std::path::Path, sessions: i64) {
    let db = Connection::open(path).expect("a connection");
    let script = "PRAGMA synchronous = OFF; PRAGMA cache_size = -200000; BEGIN;
        INSERT INTO scope (key, name) VALUES (1, 'global');
        CREATE TEMP TABLE n AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {sessions}) SELECT i FROM n;
        INSERT INTO session (key, scope, name) SELECT i, 1, 'session-' || i FROM n;
        INSERT INTO lineage (key, base, open) SELECT i, 0, 1 FROM n;
        INSERT INTO message (key, cuts, body)
            SELECT (i << 24), 0, '{\"role\":\"user\",\"content\":[{\"text\":\"Something with leeks, number ' || i || '?\"}]}' FROM n;
        INSERT INTO snapshot (key, scope, id, session, created_at, status, orphaned, lineage, up_to, named)
            SELECT i, 1, printf('0198c0de-0000-7000-8000-%012d', i), i, i * 1000000, 'completed', 0, i, 1, 1 FROM n;
        INSERT INTO tip (scope, created_at, id, session)
            SELECT 1, i * 1000000, printf('0198c0de-0000-7000-8000-%012d', i), i FROM n;
        COMMIT; PRAGMA wal_checkpoint(TRUNCATE);";
    db.execute_batch(&script.replace("{sessions}", &sessions.to_string()))
        .expect("rows");
}

async fn measure(sessions: i64) -> Vec<Duration> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sessions.db");
    drop(SqliteStore::open(&path).await.expect("a store"));
    fill(&path, sessions);
    let mut random = fastrand::Rng::with_seed(5);
    let scope = Scope::default();
    let mut times = vec![Vec::new(); 7];
    let mut note = |which: usize, start: Instant| times[which].push(start.elapsed());
    for round in 0..ROUNDS {
        let start = Instant::now();
        let store = SqliteStore::open(&path).await.expect("a store");
        note(0, start);
        let number = random.i64(1..sessions - 60);
        let session = format!("session-{number}").as_str().into();

        let start = Instant::now();
        store
            .latest(&scope, &session, Detail::Whole)
            .await
            .expect("a read")
            .expect("a row");
        note(1, start);
        let mut query = SessionQuery::default();
        let start = Instant::now();
        store.sessions(&scope, &query).await.expect("a page");
        note(2, start);
        let created_at = Timestamp::from_nanosecond(i128::from(number) * 1_000_000).expect("a time");
        query.after = Some(Cursor {
            created_at,
            snapshot_id: "x".into(),
        });
        let start = Instant::now();
        store.sessions(&scope, &query).await.expect("a page");
        note(3, start);
        let start = Instant::now();
        store
            .list(&scope, &SnapshotQuery::of(session))
            .await
            .expect("a page");
        note(4, start);
        let mut conversation = Conversation::new(&format!("new-{round}"), 1);
        let start = Instant::now();
        conversation.save_turn(&store).await;
        note(5, start);
        let last = format!("session-{}", sessions - i64::try_from(round).expect("few"));
        let start = Instant::now();
        let deleted = store
            .delete(&scope, &Deletion::Session(last.into()))
            .await
            .expect("a deletion");
        note(6, start);
        assert_eq!(deleted, 1);
    }
    times.into_iter().map(median).collect()
}
