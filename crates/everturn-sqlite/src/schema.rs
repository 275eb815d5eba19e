//! The tables, and the migrations from older versions.
//!
//! The version is SQLite's `user_version`; `application_id` distinguishes our databases from others. A
//! migration is a script from one version to the next. All needed migrations run in one transaction.

use std::collections::BTreeSet;

use everturn_core::Error;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::checksum::Checksum;
use crate::fault::{Fault, Outcome};

/// The tables of the session store.
pub(crate) const SESSIONS: Schema<'_> = Schema {
    // `EvTn` in ASCII, by which `file` and SQLite's tools recognise the database.
    application: 0x4576_546e,
    migrations: &[include_str!("schema/1.sql")],
    fingerprint: 2_370_600_266,
    name: "session",
    if_foreign: "this database belongs to another program: choose another path for the session store",
    if_newer: "restore a backup made with it",
};

/// A kind of database.
pub(crate) struct Schema<'a> {
    pub(crate) application: i32,
    /// The scripts from each version to the next.
    pub(crate) migrations: &'a [&'a str],
    /// The checksum of the tables that the scripts make.
    pub(crate) fingerprint: i64,
    /// The content of the database, for error messages.
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
            return self.check_tables(connection);
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have migrated meanwhile.
        let version = self.version(&transaction)?;
        for migration in &self.migrations[version..] {
            transaction
                .execute_batch(migration)
                .map_err(|error| self.unexpected(error, version))?;
        }
        transaction.pragma_update(None, "application_id", self.application)?;
        transaction.pragma_update(None, "user_version", self.migrations.len())?;
        self.check_tables(&transaction)?;
        transaction.commit()?;
        Ok(())
    }

    /// Checks that every table has the columns that this version gives it.
    fn check_tables(&self, connection: &Connection) -> Outcome<()> {
        // Most databases equal the result of the migration scripts. Comparing a fingerprint is much faster
        // than running the scripts, which would dominate the time of opening.
        if fingerprint(connection)? == self.fingerprint {
            return Ok(());
        }
        let model = Connection::open_in_memory()?;
        for migration in self.migrations {
            model.execute_batch(migration)?;
        }
        let (expected, found) = (columns(&model)?, columns(connection)?);
        match expected.difference(&found).next() {
            None => Ok(()),
            Some((table, column)) => Err(self.foreign(&format!(
                "it has no column '{column}' in a table '{table}', as version {} has",
                self.migrations.len()
            ))),
        }
    }

    /// Describes the failure of a migration if the tables are not the expected ones.
    fn unexpected(&self, error: rusqlite::Error, version: usize) -> Fault {
        let why = match &error {
            rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
            rusqlite::Error::SqliteFailure(failure, _) if failure.code == ErrorCode::Unknown => {
                error.to_string()
            }
            _ => return error.into(),
        };
        self.foreign(&format!(
            "its tables are not those of version {version}, which it says it has ({why})"
        ))
    }

    fn foreign(&self, why: &str) -> Fault {
        let refusal = format!(
            "this is not a {} database that this program knows: {why}; it was written by another program or by a version \
             that was never released. Choose another path, or restore a backup",
            self.name
        );
        Error::failed_precondition(refusal).into()
    }

    /// Returns the version in a transaction, so that a database under creation by another process is seen
    /// whole or not at all.
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

/// Returns the checksum of the texts of all tables.
fn fingerprint(connection: &Connection) -> Outcome<i64> {
    let mut statement =
        connection.prepare("SELECT sql FROM sqlite_schema WHERE type = 'table' ORDER BY name")?;
    let mut rows = statement.query([])?;
    let mut checksum = Checksum::default();
    while let Some(row) = rows.next()? {
        checksum = checksum.with(row.get_ref(0)?);
    }
    Ok(checksum.finish())
}

/// Returns the columns of all tables.
fn columns(connection: &Connection) -> Outcome<BTreeSet<(String, String)>> {
    let mut statement = connection.prepare(
        "SELECT tables.name, columns.name FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns \
         WHERE tables.type = 'table'",
    )?;
    let columns = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(columns.collect::<rusqlite::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use everturn_core::Status;

    use super::*;
    use crate::connection::open;

    fn having<'a>(migrations: &'a [&'a str]) -> Schema<'a> {
        Schema {
            migrations,
            ..SESSIONS
        }
    }

    impl Schema<'_> {
        /// Returns the fingerprint of the tables that the scripts make.
        pub(crate) fn made(&self) -> i64 {
            let mut connection = Connection::open_in_memory().unwrap();
            self.migrate(&mut connection).unwrap();
            fingerprint(&connection).unwrap()
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
    fn the_fingerprint_is_that_of_the_tables_that_the_scripts_make() {
        assert_eq!(SESSIONS.made(), SESSIONS.fingerprint);
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
