//! The tables, and how a database of an older version becomes one of this.
//!
//! The version is SQLite's `user_version`; `application_id` tells our databases from others. A migration is a script that
//! leads from one version to the next; all that are needed run in one transaction.

use everturn_core::Error;
use rusqlite::{Connection, TransactionBehavior};

use crate::fault::Outcome;

/// The tables of the session store.
pub(crate) const SESSIONS: Schema<'_> = Schema {
    // `EvTn` in ASCII, so that `file` and SQLite's tools can tell whose database this is.
    application: 0x4576_546e,
    migrations: &[
        include_str!("schema/1.sql"),
        include_str!("schema/2.sql"),
        include_str!("schema/3.sql"),
    ],
    name: "session",
    if_foreign: "this database belongs to another program: choose another path for the session store",
    if_newer: "restore a backup made with it",
};

/// A kind of database.
pub(crate) struct Schema<'a> {
    pub(crate) application: i32,
    /// What leads from each version to the next.
    pub(crate) migrations: &'a [&'a str],
    /// What is kept in it.
    pub(crate) name: &'a str,
    /// What to say if the file is another kind of database.
    pub(crate) if_foreign: &'a str,
    /// What else to do about a newer version than updating the program.
    pub(crate) if_newer: &'a str,
}

impl Schema<'_> {
    /// Creates or updates the tables.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the file is another kind of database, or of a newer version.
    pub(crate) fn migrate(&self, connection: &mut Connection) -> Outcome<()> {
        if self.version_now(connection)? == self.migrations.len() {
            return Ok(());
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have been faster.
        let version = self.version(&transaction)?;
        for migration in &self.migrations[version..] {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "application_id", self.application)?;
        transaction.pragma_update(None, "user_version", self.migrations.len())?;
        transaction.commit()?;
        Ok(())
    }

    /// The version at one moment: of what another process is creating, all is seen or nothing.
    fn version_now(&self, connection: &mut Connection) -> Outcome<usize> {
        let transaction = connection.transaction()?;
        self.version(&transaction)
    }

    /// The version of a database, which is one that this program can work with.
    fn version(&self, connection: &Connection) -> Outcome<usize> {
        let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let (version, application) = (number("user_version")?, number("application_id")?);
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables > 0 && application != i64::from(self.application) {
            return Err(Error::failed_precondition(self.if_foreign).into());
        }
        let known = self.migrations.len();
        match usize::try_from(version) {
            Ok(version) if version <= known => Ok(version),
            _ => Err(Error::failed_precondition(format!(
                "this {} database has schema version {version}, which is newer than version {known} that this program \
                 knows: update the program, or {}",
                self.name, self.if_newer,
            ))
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use everturn_core::Status;

    use super::*;
    use crate::connection::open;
    use crate::fault::Fault;

    fn having<'a>(migrations: &'a [&'a str]) -> Schema<'a> {
        Schema {
            migrations,
            ..SESSIONS
        }
    }

    fn refusal(outcome: Outcome<()>) -> Error {
        match outcome {
            Err(Fault::Refused(error)) => error,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn an_older_database_keeps_its_rows_on_the_way_to_a_newer_version() {
        let mut connection = Connection::open_in_memory().unwrap();
        let first = "CREATE TABLE a (x INTEGER) STRICT; INSERT INTO a VALUES (7);";
        having(&[first]).migrate(&mut connection).unwrap();

        let second = "ALTER TABLE a ADD COLUMN y INTEGER; UPDATE a SET y = x + 1;";
        having(&[first, second]).migrate(&mut connection).unwrap();

        let row: (i64, i64) = connection
            .query_row("SELECT x, y FROM a", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!(row, (7, 8));
        assert_eq!(having(&["", ""]).version(&connection).unwrap(), 2);
    }

    #[test]
    fn a_migration_that_fails_leaves_the_database_as_it_was() {
        let mut connection = Connection::open_in_memory().unwrap();
        let first = "CREATE TABLE a (x INTEGER) STRICT;";
        having(&[first]).migrate(&mut connection).unwrap();

        let second = "CREATE TABLE b (x INTEGER) STRICT; nonsense;";
        let outcome = having(&[first, second]).migrate(&mut connection);

        assert!(outcome.is_err());
        assert_eq!(having(&[first]).version(&connection).unwrap(), 1);
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .unwrap();
        assert_eq!(tables, 1);
    }

    #[test]
    fn a_newer_database_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        SESSIONS.migrate(&mut connection).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();

        let error = refusal(SESSIONS.migrate(&mut connection));

        assert_eq!(error.status(), Status::FailedPrecondition);
        assert!(error.message().contains("version 99"), "{error}");
    }

    #[test]
    fn a_database_that_is_being_created_is_not_taken_for_anothers() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let folder = tempfile::tempdir().unwrap();
        for round in 0..50 {
            let path = folder.path().join(format!("{round}.db"));
            let mut watching = open(&path, PATIENCE).unwrap();
            let create = || SESSIONS.migrate(&mut open(&path, PATIENCE)?);

            std::thread::scope(|scope| {
                let creating = scope.spawn(create);
                while SESSIONS.version_now(&mut watching).unwrap() == 0 {}
                creating.join().unwrap().unwrap();
            });
        }
    }
}
