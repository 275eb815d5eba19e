//! Checks that a row which is not found does not exist.
//!
//! Rows are looked up by their names in an index. If an entry of the index is damaged, the row looks like one
//! that never existed. The damaged entry is still where the search ends. So the entries on both sides of that
//! place are compared with their rows. A damaged page may have lost entries altogether. So the entries of the
//! index are counted once, when a row is first not found.

use rusqlite::{Params, Row};

use everturn_sql::StoreFault;

use crate::fault::{Fault, Outcome};
use crate::read::Reading;
use crate::statement::Statements;

/// A table whose rows have names, with the statements that find the neighbours of a name in its index and the
/// row of a key.
struct Named {
    table: &'static str,
    before: &'static str,
    after: &'static str,
    row: &'static str,
    /// Selects whether the index has as many entries as the table, or another index, has rows.
    is_complete: &'static str,
}

const SCOPE: Named = Named {
    table: "scope",
    before: "SELECT key, name, 0 FROM scope WHERE name < ?1 ORDER BY name DESC LIMIT 1",
    after: "SELECT key, name, 0 FROM scope WHERE name > ?1 ORDER BY name LIMIT 1",
    row: "SELECT key, name, 0 FROM scope WHERE key = ?1",
    is_complete: "SELECT (SELECT count(*) FROM scope INDEXED BY sqlite_autoindex_scope_1 WHERE name >= '') \
        = (SELECT count(*) FROM scope NOT INDEXED)",
};

const SESSION: Named = Named {
    table: "session",
    before: "SELECT key, name, scope FROM session WHERE (scope, name) < (?1, ?2) ORDER BY scope DESC, name DESC LIMIT 1",
    after: "SELECT key, name, scope FROM session WHERE (scope, name) > (?1, ?2) ORDER BY scope, name LIMIT 1",
    row: "SELECT key, name, scope FROM session WHERE key = ?1",
    is_complete: "SELECT (SELECT count(*) FROM session INDEXED BY sqlite_autoindex_session_1 WHERE scope > 0) \
        = (SELECT count(*) FROM session NOT INDEXED)",
};

const SNAPSHOT: Named = Named {
    table: "snapshot",
    before: "SELECT key, id, scope FROM snapshot WHERE (scope, id) < (?1, ?2) ORDER BY scope DESC, id DESC LIMIT 1",
    after: "SELECT key, id, scope FROM snapshot WHERE (scope, id) > (?1, ?2) ORDER BY scope, id LIMIT 1",
    row: "SELECT key, id, scope FROM snapshot WHERE key = ?1",
    is_complete: "SELECT (SELECT count(*) FROM snapshot INDEXED BY sqlite_autoindex_snapshot_1 WHERE scope > 0) \
        = (SELECT count(*) FROM snapshot INDEXED BY snapshot_by_position WHERE session > 0)",
};

#[cfg(test)]
pub(crate) const NEIGHBOURS: [&str; 6] = [
    SCOPE.before,
    SCOPE.after,
    SESSION.before,
    SESSION.after,
    SNAPSHOT.before,
    SNAPSHOT.after,
];

/// A key, a name as it is stored, and the tenant's key.
type Entry = (i64, Vec<u8>, i64);

impl Reading<'_> {
    /// Checks that a tenant has no session of this name.
    ///
    /// # Errors
    /// `DATA_LOSS` if an index is damaged where the session would be.
    pub(crate) fn check_no_session(&self, scope: &str, session: &str) -> Outcome<()> {
        let what = || format!("session '{session}'");
        match self.scope_key(scope, &what)? {
            Some(scope) => self.check_neighbours(&SESSION, (scope, session), &what),
            None => Ok(()),
        }
    }

    /// Checks that a tenant has no snapshot with this id.
    ///
    /// # Errors
    /// `DATA_LOSS` if an index is damaged where the snapshot would be.
    pub(crate) fn check_no_snapshot(&self, scope: &str, id: &str) -> Outcome<()> {
        let what = || format!("snapshot '{id}'");
        let Some(scope) = self.scope_key(scope, &what)? else {
            return Ok(());
        };
        // A snapshot is read together with its session.
        let by_id = "SELECT key, id, scope FROM snapshot WHERE scope = ?1 AND id = ?2";
        if self.entry(by_id, (scope, id))?.is_some() {
            return Err(damaged(&SESSION, &what()));
        }
        self.check_neighbours(&SNAPSHOT, (scope, id), &what)
    }

    /// Checks that the row of a session has the name by which it was found.
    ///
    /// # Errors
    /// `DATA_LOSS` if it has not.
    pub(crate) fn check_session(&self, key: i64, session: &str) -> Outcome<()> {
        match self.entry(SESSION.row, [key])? {
            Some((_, name, _)) if name == session.as_bytes() => Ok(()),
            _ => Err(damaged(&SESSION, &format!("session '{session}'"))),
        }
    }

    fn scope_key(&self, scope: &str, what: &impl Fn() -> String) -> Outcome<Option<i64>> {
        let sql = "SELECT key FROM scope WHERE name = ?1";
        let key = self.db.find(sql, [scope], |row| row.get(0))?;
        if key.is_none() {
            self.check_neighbours(&SCOPE, [scope], what)?;
        }
        Ok(key)
    }

    fn check_neighbours(
        &self,
        named: &Named,
        name: impl Params + Copy,
        what: &impl Fn() -> String,
    ) -> Outcome<()> {
        for side in [named.before, named.after] {
            // The index has all columns of these statements, and the row is read by its key.
            if let Some(entry) = self.entry(side, name)?
                && self.entry(named.row, [entry.0])? != Some(entry)
            {
                return Err(damaged(named, &what()));
            }
        }
        if !self.cache.is_counted(named.table) {
            if !self.db.query_row(named.is_complete, [], |row| row.get(0))? {
                return Err(damaged(named, &what()));
            }
            self.cache.learn_counted(named.table);
        }
        Ok(())
    }

    fn entry(&self, sql: &str, params: impl Params) -> Outcome<Option<Entry>> {
        let entry = |row: &Row<'_>| Ok((row.get(0)?, row.get_ref(1)?.as_bytes()?.to_vec(), row.get(2)?));
        self.db.find(sql, params, entry)
    }
}

fn damaged(named: &Named, what: &str) -> Fault {
    Fault::damaged(format!(
        "{what} cannot be looked up: the index of table '{}' does not match its rows; restore a backup",
        named.table
    ))
}
