//! The rows of streams.

use std::time::Duration;

use everturn_core::stream_log::{
    Entry, JsonText, Position, StoredError, StreamEvent, StreamKey, StreamSubject, WRITER_LOST, writer_lost,
};
use everturn_sql::{Encoding, StoreFault, parse};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use super::live::Unwritten;
use super::partitions::{SlotSweep, key_at, slot_of};
use super::stream_options::length;
use crate::body::{pack, unpack};
use crate::connection::Database;
use crate::fault::{Fault, Outcome};
use crate::statement::{Statement, column};

/// How many rows of chunks a reader is given at a time.
const BATCH: i64 = 64;

/// Turns off waiting for the device: a turn is replayed after a power loss.
const UNFORCED: &str = "unforced AS (SELECT set_config('synchronous_commit', 'off', true))";

/// The outcome of writing.
pub(super) enum Written {
    Kept {
        stopped: bool,
    },
    /// Another process has ended the stream.
    Fenced,
}

/// The end of a stream as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Ending {
    Done(String),
    Failed(StoredError),
    /// The writer ended without finishing the stream.
    Lost,
}

fn pack_end(end: &StreamEvent) -> Outcome<Option<Vec<u8>>> {
    let ending = match end {
        StreamEvent::Chunk(_) => return Ok(None),
        StreamEvent::Done(output) => Ending::Done(output.as_str().to_owned()),
        StreamEvent::Failed(error) if error.is(WRITER_LOST) => Ending::Lost,
        StreamEvent::Failed(error) => Ending::Failed(StoredError::from(error)),
    };
    Ok(Some(pack(Encoding::default(), &everturn_sql::write(&ending)?)?))
}

fn unpack_end(bytes: &[u8]) -> Outcome<StreamEvent> {
    Ok(match parse(&unpack(bytes)?)? {
        Ending::Done(output) => StreamEvent::Done(text(output)?),
        Ending::Failed(error) => StreamEvent::Failed(error.into()),
        Ending::Lost => StreamEvent::Failed(writer_lost()),
    })
}

fn text(text: String) -> Outcome<JsonText> {
    JsonText::parse(text).map_err(|error| Fault::damaged(format!("a chunk is no JSON: {error}")))
}

fn of_key(sql: impl Into<String>, key: &StreamKey) -> Statement<'static> {
    Statement::new(sql).with((key.scope(), key.id()))
}

/// Begins a stream and returns its key; `None` if the name exists. Removes expired streams, and ends streams
/// whose writers have died.
pub(super) async fn open(
    db: &Database,
    key: &StreamKey,
    now: i64,
    lease: Duration,
    keep_for: Duration,
    slots: &SlotSweep,
) -> Outcome<Option<i64>> {
    let lost = pack_end(&StreamEvent::Failed(writer_lost()))?;
    let sql = "WITH gone AS (DELETE FROM @stream WHERE finished_at < $1) \
        UPDATE @stream SET finished_at = $2, ending = $3 WHERE finished_at IS NULL AND lease_until < $2";
    let sweep = Statement::new(sql).with((now.saturating_sub(length(keep_for)), now, lost));
    db.read(&sweep).await?;
    slots.run(db).await?;
    let insert = of_key(
        "INSERT INTO @stream (scope, id, lease_until, key, tenant, session) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT DO NOTHING RETURNING key",
        key,
    )
    .with((now.saturating_add(length(lease)), key_at(now, keep_for)));
    let insert = of_subject(insert, key.subject());
    let rows = db.run(&insert).await?;
    rows.first().map(|row| column(row, 0)).transpose()
}

/// Returns the key of a stream that has not expired.
pub(super) async fn find(db: &Database, key: &StreamKey, expired_before: i64) -> Outcome<Option<i64>> {
    let sql =
        "SELECT key FROM @stream WHERE scope = $1 AND id = $2 AND (finished_at IS NULL OR finished_at >= $3)";
    let rows = db.read(&of_key(sql, key).with(expired_before)).await?;
    rows.first().map(|row| column(row, 0)).transpose()
}

/// Asks the writer of a stream to stop; returns whether there is such a stream.
pub(super) async fn stop(db: &Database, key: &StreamKey, expired_before: i64) -> Outcome<bool> {
    let sql = "UPDATE @stream SET stopped = true WHERE scope = $1 AND id = $2 \
               AND (finished_at IS NULL OR finished_at >= $3) RETURNING 1";
    let rows = db.read(&of_key(sql, key).with(expired_before)).await?;
    Ok(!rows.is_empty())
}

/// Adds the tenant and the session of a subject to a statement's parameters.
fn of_subject(statement: Statement<'static>, subject: &StreamSubject) -> Statement<'static> {
    let session = subject.session_id().map(|session| session.as_bytes().to_vec());
    statement.with((subject.tenant_name(), session))
}

/// Notes whose text a stream holds; `false` if the stream was removed.
pub(super) async fn note(db: &Database, row: i64, subject: &StreamSubject) -> Outcome<bool> {
    let sql = "UPDATE @stream SET tenant = $2, session = $3 WHERE key = $1 RETURNING 1";
    let statement = of_subject(Statement::new(sql).with(row), subject);
    Ok(!db.read(&statement).await?.is_empty())
}

/// Removes all streams about a subject, with their chunks, and returns their keys.
pub(super) async fn erase(db: &Database, subject: &StreamSubject) -> Outcome<Vec<i64>> {
    let sql = format!(
        "WITH gone AS (DELETE FROM @stream WHERE tenant = $1 AND ($2::bytea IS NULL OR session = $2) RETURNING key), \
         chunks AS (DELETE FROM @chunk USING gone WHERE slot = {slot} AND stream = gone.key) \
         SELECT key FROM gone",
        slot = slot_of("gone.key"),
    );
    let rows = db.read(&of_subject(Statement::new(sql), subject)).await?;
    rows.iter().map(|row| column(row, 0)).collect()
}

/// Writes new chunks, and the end if there is one, and renews the lease.
pub(super) async fn write(
    db: &Database,
    row: i64,
    unwritten: &Unwritten,
    now: i64,
    lease: Duration,
) -> Outcome<Written> {
    let ending = unwritten.end.as_ref().map(pack_end).transpose()?.flatten();
    let finished_at = ending.as_ref().map(|_| unwritten.ended_at.unwrap_or(now));
    let texts: Vec<&str> = unwritten.chunks.iter().map(JsonText::as_str).collect();
    let chunks = if texts.is_empty() {
        None
    } else {
        Some(pack(Encoding::default(), &everturn_sql::write(&texts)?)?)
    };
    // A statement that is carried out twice, because its answer was lost, finds its own chunks and its own
    // end.
    let statement = Statement::new(format!(
        "WITH {UNFORCED}, held AS (UPDATE @stream SET lease_until = $2, finished_at = $3, ending = $4 FROM unforced \
         WHERE key = $1 AND (ending IS NULL OR ending = $4) RETURNING stopped), \
         added AS (INSERT INTO @chunk (slot, stream, first, body) SELECT {slot}, $1, $5, $6 FROM held WHERE $6 IS NOT NULL \
         ON CONFLICT DO NOTHING) SELECT stopped FROM held",
        slot = slot_of("$1"),
    )).with((row, now.saturating_add(length(lease)), finished_at, ending, unwritten.first.cast_signed(), chunks));
    kept(&db.read(&statement).await?)
}

/// Returns whether a stream has a stop request.
pub(super) async fn look(db: &Database, row: i64) -> Outcome<Written> {
    let statement = Statement::new("SELECT stopped FROM @stream WHERE key = $1 AND ending IS NULL");
    kept(&db.read(&statement.with(row)).await?)
}

fn kept(rows: &[Row]) -> Outcome<Written> {
    Ok(match rows.first() {
        Some(row) => Written::Kept {
            stopped: column(row, 0)?,
        },
        None => Written::Fenced,
    })
}

/// Returns the next events after a position; `None` if the stream was removed. Ends a stream whose writer has
/// died.
pub(super) async fn after(
    db: &Database,
    row: i64,
    position: Position,
    now: i64,
) -> Outcome<Option<Vec<Entry>>> {
    let wanted = position.number().cast_signed();
    // The row of chunks in which the position lies, and those after it. The end is read by the same
    // statement.
    let statement = Statement::new(format!(
        "SELECT s.ending, s.lease_until < $3, c.first, c.body FROM @stream s LEFT JOIN LATERAL \
         (SELECT first, body FROM @chunk WHERE slot = {slot} AND stream = $1 AND first >= coalesce( \
           (SELECT max(first) FROM @chunk WHERE slot = {slot} AND stream = $1 AND first <= $2 + 1), 0) \
           ORDER BY first LIMIT {BATCH}) c \
         ON true WHERE s.key = $1 ORDER BY c.first",
        slot = slot_of("$1"),
    ))
    .with((row, wanted, now));
    let rows = db.read(&statement).await?;
    let Some(one) = rows.first() else {
        return Ok(None);
    };
    let mut entries = Vec::new();
    let mut last = 0;
    for row in &rows {
        let (Some(first), Some(packed)) = (column::<Option<i64>>(row, 2)?, column::<Option<&[u8]>>(row, 3)?)
        else {
            continue;
        };
        let texts: Vec<String> = parse(&unpack(packed)?)?;
        for (number, chunk) in (first.cast_unsigned()..).zip(texts) {
            last = number;
            if number > position.number() {
                entries.push(Entry::new(
                    Position::new(number),
                    StreamEvent::Chunk(text(chunk)?),
                ));
            }
        }
    }
    let is_all = i64::try_from(rows.len()).is_ok_and(|count| count < BATCH);
    if let Some(ending) = column::<Option<&[u8]>>(one, 0)?
        && is_all
    {
        entries.push(Entry::new(Position::new(last).next(), unpack_end(ending)?));
    } else if entries.is_empty() && column::<bool>(one, 1)? {
        let broken_off = pack_end(&StreamEvent::Failed(writer_lost()))?;
        let end = Statement::new(
            "UPDATE @stream SET finished_at = $2, ending = $3 WHERE key = $1 AND ending IS NULL AND lease_until < $2",
        ).with((row, now, broken_off));
        db.read(&end).await?;
    }
    Ok(Some(entries))
}
