//! A million sessions in one file, against a hundred.

use std::time::{Duration, Instant};

use everturn_agent::store::{Checksum, Deletion, Scope, SessionStore};
use everturn_sqlite::SqliteStore;
use rusqlite::Connection;

use crate::conversation::{TIMED, print_medians, time_calls};

const ROUNDS: usize = 51;

pub(crate) fn run(runtime: &tokio::runtime::Runtime) {
    println!("many sessions in one file (median of {ROUNDS})");
    let names = [&["open"][..], &TIMED, &["delete"]].concat();
    print_medians(&names, |sessions| runtime.block_on(measure(sessions)));
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

async fn measure(sessions: i64) -> Vec<Vec<Duration>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sessions.db");
    drop(SqliteStore::open(&path).await.expect("a store"));
    fill(&path, sessions).expect("rows");
    let mut random = fastrand::Rng::with_seed(5);
    let mut times = vec![Vec::new(); 7];
    for round in 0..ROUNDS {
        let start = Instant::now();
        let store = SqliteStore::open(&path).await.expect("a store");
        let opened = start.elapsed();
        let number = random.i64(1..sessions - 60);
        let session = format!("session-{number}").as_str().into();
        let calls = time_calls(&store, session, number, round).await;
        let last = format!("session-{}", sessions - i64::try_from(round).expect("few"));
        let start = Instant::now();
        let deleted = store
            .delete(&Scope::default(), &Deletion::Session(last.into()))
            .await
            .expect("a deletion");
        let all = [opened].into_iter().chain(calls).chain([start.elapsed()]);
        assert_eq!(deleted, 1);
        for (times, time) in times.iter_mut().zip(all) {
            times.push(time);
        }
    }
    times
}
