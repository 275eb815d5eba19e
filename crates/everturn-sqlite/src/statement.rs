//! Statements in one call.

use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::fault::Outcome;

/// Statements that a connection prepares once.
pub(crate) trait Statements {
    fn connection(&self) -> &Connection;

    /// Executes a statement and returns how many rows it changed.
    fn run(&self, sql: &str, params: impl Params) -> Outcome<usize> {
        Ok(self.connection().prepare_cached(sql)?.execute(params)?)
    }

    /// Inserts a row and returns its key.
    fn insert(&self, sql: &str, params: impl Params) -> Outcome<i64> {
        Ok(self.connection().prepare_cached(sql)?.insert(params)?)
    }

    /// Returns the row of a query that always has one.
    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Outcome<T> {
        Ok(self.connection().prepare_cached(sql)?.query_row(params, read)?)
    }

    /// Returns the first row of a query; `None` if it has none.
    fn find<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Outcome<Option<T>> {
        let mut statement = self.connection().prepare_cached(sql)?;
        Ok(statement.query_row(params, read).optional()?)
    }

    /// Returns all rows of a query.
    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Outcome<Vec<T>> {
        let mut statement = self.connection().prepare_cached(sql)?;
        let rows = statement.query_map(params, read)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl Statements for Connection {
    fn connection(&self) -> &Connection {
        self
    }
}
