//! Giving the rows of earlier versions their checksums, a few with every transaction.

use rusqlite::OptionalExtension;

use crate::checksum::Checksum;
use crate::fault::{Fault, Outcome};
use crate::row::{COLUMNS, Stored};
use crate::write::Writing;

/// The number of rows that a transaction adds checksums to; a fraction of a millisecond for most.
const ROWS: i64 = 32;

impl Writing<'_> {
    /// Adds checksums to a few rows that have none. Returns whether there may be more.
    ///
    /// A row that cannot be read is left as it is; reading it reports the damage.
    pub(crate) fn upgrade(&mut self) -> Outcome<bool> {
        let db = self.reading.db;
        let next = db
            .prepare_cached("SELECT name, done, last FROM unchecked LIMIT 1")?
            .query_row([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((table, done, last)): Option<(String, i64, i64)> = next else {
            return Ok(false);
        };
        let sql = format!("SELECT key FROM {table} WHERE key > ?1 AND key <= ?2 ORDER BY key LIMIT {ROWS}");
        let keys: Vec<i64> = db
            .prepare_cached(&sql)?
            .query_map([done, last], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let set = format!("UPDATE {table} SET checksum = ?2 WHERE key = ?1 AND checksum IS NULL");
        for key in &keys {
            match self.checksum(&table, *key) {
                Ok(checksum) => {
                    db.prepare_cached(&set)?.execute((key, checksum))?;
                }
                Err(Fault::Damaged(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        match keys.last() {
            Some(done) => db
                .prepare_cached("UPDATE unchecked SET done = ?2 WHERE name = ?1")?
                .execute((&table, done))?,
            None => db
                .prepare_cached("DELETE FROM unchecked WHERE name = ?1")?
                .execute([&table])?,
        };
        Ok(true)
    }

    fn checksum(&mut self, table: &str, key: i64) -> Outcome<i64> {
        match table {
            "message" => {
                let text = self.reading.message_text(key)?;
                Ok(Checksum::of_text(key, &text))
            }
            "document" => {
                let text = self.reading.document_text(key)?;
                Ok(Checksum::of_text(key, &text))
            }
            "lineage" => self.reading.lineage_checksum(key),
            "snapshot" => {
                let sql = format!(
                    "SELECT {COLUMNS} FROM snapshot JOIN session ON session.key = snapshot.session WHERE snapshot.key = ?1"
                );
                let mut statement = self.reading.db.prepare_cached(&sql)?;
                let mut rows = statement.query([key])?;
                let row = rows
                    .next()?
                    .ok_or_else(|| Fault::damaged("a snapshot is missing"))?;
                Stored::checksum(row)
            }
            other => Err(Fault::damaged(format!("there are no checksums in '{other}'"))),
        }
    }
}
