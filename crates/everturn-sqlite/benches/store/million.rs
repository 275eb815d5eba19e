//! A million sessions in one file, against a hundred.

use std::time::{Duration, Instant};

use everturn_agent::store::{
    Checksum, Cursor, Deletion, Detail, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
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

/// Creates sessions of one turn each by SQL, because the store would take minutes.
fn fill(path: &std::path::Path, sessions: i64) -> rusqlite::Result<()> {
    let mut db = Connection::open(path)?;
    db.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000")?;
    let transaction = db.transaction()?;
    transaction.execute("INSERT INTO scope (key, name) VALUES (1, 'global')", [])?;
    let mut session = transaction.prepare("INSERT INTO session (key, scope, name) VALUES (?1, 1, ?2)")?;
    let mut lineage =
        transaction.prepare("INSERT INTO lineage (key, base, open, checksum) VALUES (?1, 0, 1, ?2)")?;
    let mut message =
        transaction.prepare("INSERT INTO message (key, cuts, body, checksum) VALUES (?1, 0, ?2, ?3)")?;
    let mut snapshot = transaction.prepare(
        "INSERT INTO snapshot (key, scope, id, session, created_at, status, orphaned, lineage, up_to, named, checksum) \
         VALUES (?1, 1, ?2, ?1, ?3, 'completed', 0, ?1, 1, 1, ?4)",
    )?;
    let mut tip =
        transaction.prepare("INSERT INTO tip (scope, created_at, id, session) VALUES (1, ?1, ?2, ?3)")?;
    for key in 1..=sessions {
        let (name, id) = (
            format!("session-{key}"),
            format!("0198c0de-0000-7000-8000-{key:012}"),
        );
        let created_at = key * 1_000_000;
        session.execute((key, &name))?;
        lineage.execute((key, Checksum::default().integer(key).null().integer(0).finish()))?;
        let text =
            format!(r#"{{"role":"user","content":[{{"text":"Something with leeks, number {key}?"}}]}}"#);
        let of_text = Checksum::default()
            .integer(key << 24)
            .then(&Checksum::default().text(&text));
        message.execute((key << 24, &text, of_text.finish()))?;
        snapshot.execute((key, &id, created_at, row_checksum(key, &id, &name, created_at)))?;
        tip.execute((created_at, &id, key))?;
    }
    drop((session, lineage, message, snapshot, tip));
    transaction.commit()?;
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
}

/// Returns the checksum of a row: of its columns in their order, and of its tenant's key.
fn row_checksum(key: i64, id: &str, name: &str, created_at: i64) -> i64 {
    let row = Checksum::default().text(id).text(name).null().integer(created_at);
    let row = row.null().null().text("completed").null().null().null().null();
    let row = row.integer(0).null().integer(key).integer(1);
    row.null().null().null().integer(1).null().integer(1).finish()
}

async fn measure(sessions: i64) -> Vec<Duration> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sessions.db");
    drop(SqliteStore::open(&path).await.expect("a store"));
    fill(&path, sessions).expect("rows");
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
