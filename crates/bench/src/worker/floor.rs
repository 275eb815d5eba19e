//! The lower bound: the bytes of a conversation in a bare SQLite database, without a framework.

use std::path::Path;
use std::time::Instant;

use everturn::Result;
use everturn::prelude::*;
use rusqlite::{Connection, params};

use super::{answer, bytes_in, median, number, question};

pub(super) fn done(request: &Value) -> Result<Value> {
    if request["work"] != "conversation" && request["work"] != "sessions" {
        return Ok(json!({ "unsupported": true }));
    }
    let folder = Path::new(request["folder"].as_str().unwrap_or("."));
    let full = request["store"] == "floor-full";
    measured(request, folder, full).map_err(Error::foreign)
}

fn measured(request: &Value, folder: &Path, full: bool) -> rusqlite::Result<Value> {
    let db = Connection::open(folder.join("floor.db"))?;
    let synchronous = if full { "FULL" } else { "NORMAL" };
    db.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous};
         CREATE TABLE message (session TEXT, number INTEGER, text TEXT, PRIMARY KEY (session, number)) WITHOUT ROWID"
    ))?;
    let mut times = Vec::new();
    let sessions = number(request, "sessions").max(1);
    let all = Instant::now();
    // SQLite has only one writer, so concurrent sessions are consecutive turns.
    for turn in 0..number(request, "turns") {
        for session in 0..sessions {
            let began = Instant::now();
            save(&db, session, turn)?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    let seconds = all.elapsed().as_secs_f64();
    if request["work"] == "sessions" {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let per_second = times.len() as f64 / seconds;
        return Ok(json!({ "perSecond": per_second }));
    }
    drop(db);
    let samples = number(request, "samples").min(times.len());
    let first = times.len() - samples;
    Ok(json!({ "micros": median(&mut times[first..]), "bytes": bytes_in(folder) }))
}

fn save(db: &Connection, session: usize, turn: usize) -> rusqlite::Result<()> {
    db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let session = format!("s{session}");
    let mut insert = db.prepare_cached("INSERT INTO message VALUES (?1, ?2, ?3)")?;
    insert.execute(params![session, turn * 2, question()])?;
    insert.execute(params![session, turn * 2 + 1, answer()])?;
    db.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}
