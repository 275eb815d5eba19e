//! The tables, and the migrations from older versions.
//!
//! The version is SQLite's `user_version`; `application_id` distinguishes our databases from others. A migration is a script
//! from one version to the next. All needed migrations run in one transaction.

use everturn_core::Error;
use rusqlite::{Connection, TransactionBehavior};

use crate::fault::Outcome;

/// The tables of the session store.
pub(crate) const SESSIONS: Schema<'_> = Schema {
    // `EvTn` in ASCII, by which `file` and SQLite's tools recognise the database.
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
    /// The scripts from each version to the next.
    pub(crate) migrations: &'a [&'a str],
    /// What the database holds, for error messages.
    pub(crate) name: &'a str,
    /// The error message for another kind of database.
    pub(crate) if_foreign: &'a str,
    /// Further advice for a database of a newer version.
    pub(crate) if_newer: &'a str,
}

impl Schema<'_> {
    /// Creates or migrates the tables.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the file is another kind of database, or of a newer version.
    pub(crate) fn migrate(&self, connection: &mut Connection) -> Outcome<()> {
        if self.version_now(connection)? == self.migrations.len() {
            return Ok(());
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have migrated meanwhile.
        let version = self.version(&transaction)?;
        for migration in &self.migrations[version..] {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "application_id", self.application)?;
        transaction.pragma_update(None, "user_version", self.migrations.len())?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns the version in a transaction, so that a database under creation by another process is seen whole or not at all.
    fn version_now(&self, connection: &mut Connection) -> Outcome<usize> {
        let transaction = connection.transaction()?;
        self.version(&transaction)
    }

    /// Returns the version of a database that this program can work with.
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
    fn a_migrated_database_keeps_its_rows() {
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
    fn a_database_under_creation_is_not_taken_for_another_programs() {
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
