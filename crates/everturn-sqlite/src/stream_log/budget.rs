//! Room in the file: a limit for each owner's streams, and one for all together.

use everturn_core::Error;
use everturn_core::stream_log::StreamKey;
use rusqlite::{Connection, OptionalExtension};

use super::stream_options::SqliteStreamLogOptions;
use crate::fault::Outcome;

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
        let mut removal = db.prepare_cached(
            "DELETE FROM stream WHERE key IN (
                SELECT key FROM stream WHERE owner = ?1 AND expires_at IS NOT NULL ORDER BY expires_at LIMIT 1)",
        )?;
        if removal.execute([owner])? == 0 {
            return Ok(Some(full("max_owner_bytes", "of their owner ", most)));
        }
    }
    let most = options.max_bytes;
    while sum(db, "SELECT bytes FROM total", [])?.saturating_add(bytes) > most {
        let mut removal = db.prepare_cached(
            "DELETE FROM stream WHERE key IN (
                SELECT key FROM stream WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1)",
        )?;
        if removal.execute([])? == 0 {
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
