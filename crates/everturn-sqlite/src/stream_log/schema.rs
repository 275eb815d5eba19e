//! The tables of streams, and how a database of an older version becomes one of this.
//!
//! Versioned as the session store's are: `user_version` counts the scripts that have run, `application_id` says whose
//! database it is.

use everturn_core::Error;
use rusqlite::{Connection, TransactionBehavior};

use crate::fault::Outcome;

/// `EvSt` in ASCII.
const APPLICATION_ID: i32 = 0x4576_5374;

const MIGRATIONS: &[&str] = &[include_str!("schema/1.sql")];

/// Creates or updates the tables.
pub(super) fn migrate(connection: &mut Connection) -> Outcome<()> {
    if version(connection)? == MIGRATIONS.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let version = version(&transaction)?;
    for migration in &MIGRATIONS[version..] {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", MIGRATIONS.len())?;
    transaction.commit()?;
    Ok(())
}

/// The version of a database, which is one that this program can work with.
fn version(connection: &Connection) -> Outcome<usize> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (version, application) = (number("user_version")?, number("application_id")?);
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 && application != i64::from(APPLICATION_ID) {
        return Err(Error::failed_precondition(
            "this database is not one of streams: a stream log needs a file of its own, beside the session store's",
        )
        .into());
    }
    match usize::try_from(version) {
        Ok(version) if version <= MIGRATIONS.len() => Ok(version),
        _ => Err(Error::failed_precondition(format!(
            "this stream database has schema version {version}, which is newer than version {} that this program knows: \
             update the program, or choose another path",
            MIGRATIONS.len(),
        ))
        .into()),
    }
}
