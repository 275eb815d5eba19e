//! The tables of the stream database, the statements on them, and the limits on their size.

use everturn_core::stream_log::{
    JsonText, Position, StoredError, StreamEvent, StreamKey, StreamSubject, writer_lost,
};
use everturn_core::{Error, Result};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params};

use everturn_sql::StoreFault;

use super::stream_options::SqliteStreamLogOptions;
use crate::checksum::{Checksum, check};
use crate::fault::{Fault, Outcome};
use crate::schema::Schema;
use crate::statement::Statements;

/// The tables, versioned like those of the session store.
pub(super) const STREAMS: Schema<'_> = Schema {
    // `EvSt` in ASCII.
    application: 0x4576_5374,
    migrations: &[include_str!("schema/1.sql")],
    fingerprint: 446_216_259,
    name: "stream",
    if_foreign: "this database is not one of streams: a stream log needs a file of its own, beside the session store's",
    if_newer: "choose another path",
};

/// About how many bytes of chunks a row holds; a reader reads one row at a time.
const BATCH: usize = 64 * 1024;

/// How many expired streams are removed when one is opened: more than one, so that sweeping keeps up, and few
/// enough that opening stays quick.
const SWEEP: usize = 32;

/// The stored part of a stream after a position.
pub(super) struct Found {
    /// The next chunks.
    pub(super) chunks: Vec<JsonText>,
    /// The number of chunks in the whole stream.
    pub(super) written: u64,
    /// The end of the stream, if it has ended.
    pub(super) end: Option<StreamEvent>,
}

/// A stream that may be read.
pub(super) fn find(db: &Connection, key: &StreamKey, now: i64) -> Outcome<Option<i64>> {
    let sql =
        "SELECT key FROM stream WHERE scope = ?1 AND id = ?2 AND (expires_at IS NULL OR expires_at > ?3)";
    db.find(sql, params![key.scope(), key.id(), now], |row| row.get(0))
}

/// Reads what comes after a position of a stream; `None` if the stream was removed.
pub(super) fn after(db: &mut Connection, stream: i64, after: Position) -> Outcome<Option<Found>> {
    // In one transaction: the end is seen only together with everything before it.
    let transaction = db.transaction()?;
    let found = found(&transaction, stream, after)?;
    transaction.finish()?;
    Ok(found)
}

fn found(db: &Connection, stream: i64, after: Position) -> Outcome<Option<Found>> {
    let sql = "SELECT written, end, body, checksum, id FROM stream WHERE key = ?1";
    let row = db.find(sql, [stream], |row| {
        let end: Option<String> = row.get(1)?;
        let body = row.get::<_, Option<String>>(2)?;
        Ok((
            row.get::<_, u64>(0)?,
            end,
            body,
            row.get::<_, Option<i64>>(3)?,
            row.get::<_, String>(4)?,
        ))
    })?;
    let Some((written, end, body, checksum, id)) = row else {
        return Ok(None);
    };
    let in_stream = |fault: Fault| fault.in_stream(&id);
    // The end of a lost stream has no checksum.
    if let Some(end) = &end
        && checksum.is_some()
    {
        let computed = || end_checksum(stream, end, body.as_deref());
        check("the end", checksum, computed).map_err(in_stream)?;
    }
    let end = end
        .map(|end| decode_end(&end, body))
        .transpose()
        .map_err(in_stream)?;
    let chunks = if after.number() < written {
        chunks(db, stream, after).map_err(in_stream)?
    } else {
        Vec::new()
    };
    Ok(Some(Found { chunks, written, end }))
}

fn chunks(db: &Connection, stream: i64, after: Position) -> Outcome<Vec<JsonText>> {
    let mut statement = db.prepare_cached(
        "SELECT last, body, checksum FROM batch WHERE stream = ?1 AND last > ?2 ORDER BY last",
    )?;
    let mut rows = statement.query(params![stream, after.number()])?;
    let (mut chunks, mut bytes, mut next) = (Vec::new(), 0, after.number() + 1);
    while let Some(row) = rows.next()? {
        let (last, body): (u64, String) = (row.get(0)?, row.get(1)?);
        check(&format!("the batch up to chunk {last}"), row.get(2)?, || {
            batch_checksum(stream, last, &body)
        })?;
        let first = (last + 1).saturating_sub(body.split('\n').count() as u64);
        // A hole would shift the numbers of all later chunks.
        let seen = next
            .checked_sub(first)
            .ok_or_else(|| Fault::damaged(format!("chunk {next} is missing")))?;
        for line in body.split('\n').skip(usize::try_from(seen).unwrap_or(usize::MAX)) {
            chunks.push(JsonText::parse(line).map_err(|_| Fault::damaged("a chunk is not JSON"))?);
        }
        next = last + 1;
        bytes += body.len();
        if bytes >= BATCH {
            break;
        }
    }
    if chunks.is_empty() {
        return Err(Fault::damaged(format!("chunk {next} is missing")));
    }
    Ok(chunks)
}

/// Begins a stream; `None` if its key is taken.
pub(super) fn open(db: &Connection, key: &StreamKey, writer: i64) -> Outcome<Option<i64>> {
    let (tenant, session) = (key.subject().tenant_name(), key.subject().session_id());
    let parameters = params![
        key.scope(),
        key.id(),
        writer,
        key.owner(),
        opening_cost(key),
        tenant,
        session
    ];
    let sql = "INSERT INTO stream (scope, id, written, writer, stop, owner, bytes, tenant, session)
         VALUES (?1, ?2, 0, ?3, 0, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING RETURNING key";
    db.find(sql, parameters, |row| row.get(0))
}

/// Adds chunks to a stream; `false` if the stream has ended meanwhile.
pub(super) fn append(db: &Connection, stream: i64, first: Position, chunks: &[JsonText]) -> Outcome<bool> {
    let written = first.number() - 1 + chunks.len() as u64;
    let sql = "UPDATE stream SET written = ?2, bytes = bytes + ?3 WHERE key = ?1 AND end IS NULL";
    if db.run(sql, params![stream, written, cost(chunks)])? == 0 {
        return Ok(false);
    }
    let sql = "INSERT INTO batch (stream, last, body, checksum) VALUES (?1, ?2, ?3, ?4)";
    let mut insert = db.prepare_cached(sql)?;
    let mut insert = |last: u64, body: &str| {
        insert.execute(params![stream, last, body, batch_checksum(stream, last, body)])
    };
    let (mut last, mut body) = (first.number() - 1, String::new());
    for chunk in chunks {
        if !body.is_empty() && body.len() + chunk.as_str().len() > BATCH {
            insert(last, &body)?;
            body.clear();
        }
        if !body.is_empty() {
            body.push('\n');
        }
        body.push_str(chunk.as_str());
        last += 1;
    }
    if !body.is_empty() {
        insert(last, &body)?;
    }
    Ok(true)
}

/// Returns the bytes that chunks take.
pub(super) fn cost(chunks: &[JsonText]) -> usize {
    chunks.iter().map(|chunk| chunk.as_str().len() + 1).sum()
}

/// Returns how far a stream has come, and whether it has ended; `None` if it was removed.
pub(super) fn progress(db: &Connection, stream: i64) -> Outcome<Option<Progress>> {
    let sql = "SELECT written, end IS NOT NULL FROM stream WHERE key = ?1";
    db.find(sql, [stream], |row| {
        Ok(Progress {
            written: row.get(0)?,
            is_ended: row.get(1)?,
        })
    })
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    written: u64,
    is_ended: bool,
}

/// The stored end of a stream.
#[derive(Debug, Clone)]
pub(super) enum End {
    Done(JsonText),
    Failed(StoredError),
    /// The writer was dropped without finishing.
    Lost,
}

impl End {
    pub(super) fn of(outcome: Result<JsonText>) -> Self {
        outcome.map_or_else(|error| Self::Failed(StoredError::from(&error)), Self::Done)
    }

    pub(super) fn event(&self) -> StreamEvent {
        match self {
            Self::Done(output) => StreamEvent::Done(output.clone()),
            Self::Failed(error) => StreamEvent::Failed(error.clone().into()),
            Self::Lost => StreamEvent::Failed(writer_lost()),
        }
    }

    fn row(&self) -> Outcome<(&'static str, Option<String>)> {
        Ok(match self {
            Self::Done(output) => ("done", Some(output.as_str().to_owned())),
            Self::Failed(error) => ("failed", Some(JsonText::of(error)?.as_str().to_owned())),
            Self::Lost => ("lost", None),
        })
    }
}

fn decode_end(end: &str, body: Option<String>) -> Outcome<StreamEvent> {
    let body = body.map(JsonText::parse).transpose();
    let decoded = match (end, body) {
        ("done", Ok(Some(output))) => Some(End::Done(output)),
        ("failed", Ok(Some(error))) => error.read().ok().map(End::Failed),
        ("lost", _) => Some(End::Lost),
        _ => None,
    };
    let decoded = decoded.ok_or_else(|| Fault::damaged("the end makes no sense"))?;
    Ok(decoded.event())
}

/// Ends a stream; `false` if it had ended already.
pub(super) fn end(db: &Connection, stream: i64, end: &End, expires_at: i64) -> Outcome<bool> {
    let (word, body) = end.row()?;
    let bytes = body.as_ref().map_or(0, String::len);
    let checksum = end_checksum(stream, word, body.as_deref());
    let sql = "UPDATE stream SET end = ?2, body = ?3, expires_at = ?4, writer = NULL, bytes = bytes + ?5, checksum = ?6
         WHERE key = ?1 AND end IS NULL";
    Ok(db.run(sql, params![stream, word, body, expires_at, bytes, checksum])? == 1)
}

fn batch_checksum(stream: i64, last: u64, body: &str) -> i64 {
    let last = ValueRef::Integer(last.cast_signed());
    let checksum = Checksum::default().with(ValueRef::Integer(stream)).with(last);
    checksum.with(ValueRef::Text(body.as_bytes())).finish()
}

fn end_checksum(stream: i64, word: &str, body: Option<&str>) -> i64 {
    let word = ValueRef::Text(word.as_bytes());
    let body = body.map_or(ValueRef::Null, |body| ValueRef::Text(body.as_bytes()));
    let checksum = Checksum::default().with(ValueRef::Integer(stream));
    checksum.with(word).with(body).finish()
}

/// Asks the writer of a stream to stop; `false` if there is no such stream.
pub(super) fn stop(db: &Connection, key: &StreamKey, now: i64) -> Outcome<bool> {
    let Some(stream) = find(db, key, now)? else {
        return Ok(false);
    };
    db.run("UPDATE stream SET stop = 1 WHERE key = ?1", [stream])?;
    Ok(true)
}

/// Returns the streams of a writer that have a stop request.
pub(super) fn stopped(db: &Connection, writer: i64) -> Outcome<Vec<i64>> {
    let sql = "SELECT key FROM stream WHERE writer = ?1 AND stop = 1";
    db.all(sql, [writer], |row| row.get(0))
}

/// Registers this process as a writer.
pub(super) fn enlist(db: &Connection, lease_until: i64) -> Outcome<i64> {
    db.run("INSERT INTO writer (lease_until) VALUES (?1)", [lease_until])?;
    Ok(db.last_insert_rowid())
}

/// Renews a writer's lease; `false` if the writer was declared dead.
pub(super) fn renew(db: &Connection, writer: i64, lease_until: i64) -> Outcome<bool> {
    let sql = "UPDATE writer SET lease_until = ?2 WHERE key = ?1";
    Ok(db.run(sql, [writer, lease_until])? == 1)
}

/// Removes a writer that has no streams.
pub(super) fn dismiss(db: &Connection, writer: i64) -> Outcome<()> {
    db.run("DELETE FROM writer WHERE key = ?1", [writer])?;
    Ok(())
}

/// Returns whether the lease of another writer has lapsed.
pub(super) fn has_dead(db: &Connection, living: Option<i64>, now: i64) -> Outcome<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM writer WHERE lease_until <= ?1 AND key != ?2)";
    db.one(sql, [now, living.unwrap_or(0)], |row| row.get(0))
}

/// Ends the streams of other writers whose lease has lapsed.
pub(super) fn bury(db: &Connection, living: Option<i64>, now: i64, expires_at: i64) -> Outcome<()> {
    let living = living.unwrap_or(0);
    let sql = "UPDATE stream SET end = 'lost', expires_at = ?3, writer = NULL
         WHERE writer IN (SELECT key FROM writer WHERE lease_until <= ?1 AND key != ?2)";
    db.run(sql, [now, living, expires_at])?;
    let sql = "DELETE FROM writer WHERE lease_until <= ?1 AND key != ?2";
    db.run(sql, [now, living])?;
    Ok(())
}

/// Notes whose text a stream holds; `false` if the stream was removed.
pub(super) fn note(db: &Connection, stream: i64, subject: &StreamSubject) -> Outcome<bool> {
    let parameters = params![stream, subject.tenant_name(), subject.session_id()];
    let sql = "UPDATE stream SET tenant = ?2, session = ?3 WHERE key = ?1";
    Ok(db.run(sql, parameters)? == 1)
}

/// Removes all streams about a subject and returns their keys.
pub(super) fn erase(db: &Connection, subject: &StreamSubject) -> Outcome<Vec<i64>> {
    let sql = "DELETE FROM stream WHERE tenant = ?1 AND (?2 IS NULL OR session = ?2) RETURNING key";
    let parameters = params![subject.tenant_name(), subject.session_id()];
    db.all(sql, parameters, |row| row.get(0))
}

/// Returns the time at which the next stream expires.
pub(super) fn next_expiry(db: &Connection) -> Outcome<Option<i64>> {
    let sql = "SELECT min(expires_at) FROM stream WHERE expires_at IS NOT NULL";
    db.one(sql, [], |row| row.get(0))
}

/// Removes streams that have expired, a bounded number at a time, and returns how many.
pub(super) fn remove_expired(db: &Connection, now: i64) -> Outcome<usize> {
    let sql = "DELETE FROM stream WHERE key IN (SELECT key FROM stream WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
    db.run(sql, params![now, SWEEP])
}

/// Removes some expired streams, and the stream of this key if it has expired.
pub(super) fn sweep(db: &Connection, key: &StreamKey, now: i64) -> Outcome<()> {
    let sql = "DELETE FROM stream WHERE scope = ?1 AND id = ?2 AND expires_at <= ?3";
    db.run(sql, params![key.scope(), key.id(), now])?;
    remove_expired(db, now)?;
    Ok(())
}

/// The bytes counted for each stream besides its text.
const OVERHEAD: usize = 256;

/// Returns the bytes that a stream takes before anything is written to it.
pub(super) fn opening_cost(key: &StreamKey) -> usize {
    OVERHEAD + key.scope().len() + key.id().len() + key.owner().len()
}

/// Makes room for the given bytes of an owner by removing finished streams, the oldest first. Removes streams
/// of the owner if it is at its limit, and of all owners if the file is full. Returns an error if that is not
/// enough.
pub(super) fn make_room(
    db: &Connection,
    options: &SqliteStreamLogOptions,
    owner: &str,
    bytes: usize,
) -> Outcome<Option<Error>> {
    let most = options.max_owner_bytes;
    while sum(db, "SELECT bytes FROM owner WHERE name = ?1", [owner])?.saturating_add(bytes) > most {
        let sql = "DELETE FROM stream WHERE key IN (
                SELECT key FROM stream WHERE owner = ?1 AND expires_at IS NOT NULL ORDER BY expires_at LIMIT 1)";
        if db.run(sql, [owner])? == 0 {
            return Ok(Some(full("max_owner_bytes", "of their owner ", most)));
        }
    }
    let most = options.max_bytes;
    while sum(db, "SELECT bytes FROM total", [])?.saturating_add(bytes) > most {
        let sql = "DELETE FROM stream WHERE key IN (
                SELECT key FROM stream WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1)";
        if db.run(sql, [])? == 0 {
            return Ok(Some(full("max_bytes", "", most)));
        }
    }
    Ok(None)
}

fn sum(db: &Connection, query: &str, parameters: impl rusqlite::Params) -> Outcome<usize> {
    let found = db.prepare_cached(query)?.query_row(parameters, |row| row.get(0));
    Ok(found.optional()?.unwrap_or_default())
}

fn full(limit: &str, whose: &str, most: usize) -> Error {
    Error::resource_exhausted(format!(
        "the stream database has no room: streams {whose}that are being written fill {most} bytes; allow more with {limit}"
    ))
    .with_public_message("the stream grew too large to be kept")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_that_of_the_tables_that_the_scripts_make() {
        assert_eq!(STREAMS.made(), STREAMS.fingerprint);
    }
}
