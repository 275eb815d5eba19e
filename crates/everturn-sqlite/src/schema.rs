//! The tables, and how a database of an older version becomes one of this.
//!
//! The version is SQLite's `user_version`; `application_id` tells our databases from others. A migration is a script that
//! leads from one version to the next; all that are needed run in one transaction.

use everturn_core::Error;
use rusqlite::{Connection, TransactionBehavior};

use crate::fault::Outcome;

/// `EvTn` in ASCII, so that `file` and SQLite's tools can tell whose database this is.
const APPLICATION_ID: i32 = 0x4576_546e;

const MIGRATIONS: &[&str] = &[
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
];

/// Creates or updates the tables.
pub(crate) fn migrate(connection: &mut Connection) -> Outcome<()> {
    migrate_with(connection, MIGRATIONS)
}

fn migrate_with(connection: &mut Connection, migrations: &[&str]) -> Outcome<()> {
    if version(connection, migrations)? == migrations.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let version = version(&transaction, migrations)?;
    for migration in &migrations[version..] {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", migrations.len())?;
    transaction.commit()?;
    Ok(())
}

/// The version of a database, which is one that this program can work with.
fn version(connection: &Connection, migrations: &[&str]) -> Outcome<usize> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (version, application) = (number("user_version")?, number("application_id")?);
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 && application != i64::from(APPLICATION_ID) {
        return Err(Error::failed_precondition(
            "this database belongs to another program: choose another path for the session store",
        )
        .into());
    }
    match usize::try_from(version) {
        Ok(version) if version <= migrations.len() => Ok(version),
        _ => Err(Error::failed_precondition(format!(
            "this session database has schema version {version}, which is newer than version {} that this program knows: \
             update the program, or restore a backup made with it",
            migrations.len(),
        ))
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;
    use crate::fault::Fault;

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
        migrate_with(&mut connection, &[first]).unwrap();

        migrate_with(
            &mut connection,
            &[
                first,
                "ALTER TABLE a ADD COLUMN y INTEGER; UPDATE a SET y = x + 1;",
            ],
        )
        .unwrap();

        let row: (i64, i64) = connection
            .query_row("SELECT x, y FROM a", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!(row, (7, 8));
        assert_eq!(version(&connection, &["", ""]).unwrap(), 2);
    }

    #[test]
    fn a_migration_that_fails_leaves_the_database_as_it_was() {
        let mut connection = Connection::open_in_memory().unwrap();
        let first = "CREATE TABLE a (x INTEGER) STRICT;";
        migrate_with(&mut connection, &[first]).unwrap();

        let outcome = migrate_with(
            &mut connection,
            &[first, "CREATE TABLE b (x INTEGER) STRICT; nonsense;"],
        );

        assert!(outcome.is_err());
        assert_eq!(version(&connection, &[first]).unwrap(), 1);
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .unwrap();
        assert_eq!(tables, 1);
    }

    #[test]
    fn a_newer_database_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();

        let error = refusal(migrate(&mut connection));

        assert_eq!(error.status(), Status::FailedPrecondition);
        assert!(error.message().contains("version 99"), "{error}");
    }
}
