//! Giving the rows of earlier versions their checksums, a few with every transaction.
//!
//! They are computed before the database is locked. A row whose content has changed since has a checksum by then.

use rusqlite::OptionalExtension;

use crate::checksum::Checksum;
use crate::fault::{Fault, Outcome};
use crate::prepare::Preparing;
use crate::row::{COLUMNS, Stored};
use crate::write::Writing;

/// The number of rows that a transaction adds checksums to; a fraction of a millisecond for most.
const ROWS: i64 = 32;

/// The checksums of a few rows of a table.
pub(crate) struct Upgrade {
    table: String,
    /// The key after which these rows come.
    done: i64,
    last: Option<i64>,
    checksums: Vec<(i64, i64)>,
}

impl Writing<'_> {
    /// Adds checksums to rows, unless another process has done so.
    pub(crate) fn upgrade(&mut self, upgrade: &Upgrade) -> Outcome<()> {
        let Upgrade {
            table,
            done,
            last,
            checksums,
        } = upgrade;
        let db = self.reading.db;
        let advanced = match last {
            Some(last) => db
                .prepare_cached("UPDATE unchecked SET done = ?3 WHERE name = ?1 AND done = ?2")?
                .execute((table, done, last))?,
            None => db
                .prepare_cached("DELETE FROM unchecked WHERE name = ?1 AND done = ?2")?
                .execute((table, done))?,
        };
        if advanced == 0 {
            return Ok(());
        }
        let set = format!("UPDATE {table} SET checksum = ?2 WHERE key = ?1 AND checksum IS NULL");
        for (key, checksum) in checksums {
            db.prepare_cached(&set)?.execute((key, checksum))?;
        }
        Ok(())
    }
}

impl Preparing<'_> {
    /// Computes the checksums of a few rows that have none; `None` if all rows have one.
    ///
    /// A row that cannot be read is left as it is; reading it reports the damage.
    pub(crate) fn upgrade(&mut self) -> Outcome<Option<Upgrade>> {
        let db = self.reading.db;
        let next = db
            .prepare_cached("SELECT name, done, last FROM unchecked LIMIT 1")?
            .query_row([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((table, done, last)): Option<(String, i64, i64)> = next else {
            return Ok(None);
        };
        let sql = format!("SELECT key FROM {table} WHERE key > ?1 AND key <= ?2 ORDER BY key LIMIT {ROWS}");
        let keys: Vec<i64> = db
            .prepare_cached(&sql)?
            .query_map([done, last], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let mut checksums = Vec::new();
        for key in &keys {
            match self.checksum(&table, *key) {
                Ok(checksum) => checksums.push((*key, checksum)),
                Err(Fault::Damaged(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(Some(Upgrade {
            table,
            done,
            last: keys.last().copied(),
            checksums,
        }))
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
