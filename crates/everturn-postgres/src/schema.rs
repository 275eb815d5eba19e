//! The tables, and the migrations from older versions.
//!
//! A migration is a script from one version to the next. All needed migrations run in one transaction, under
//! an advisory lock that ends with it: of several processes that start at once, one migrates and the others
//! find it done.

use everturn_core::Error;
use tokio_postgres::error::SqlState;

use everturn_sql::StoreFault;

use crate::connection::{Database, Patience, quoted};
use crate::fault::{Fault, Outcome};
use crate::statement::{Statement, column};

/// The scripts from each version to the next.
pub(crate) const MIGRATIONS: &[&str] = &[include_str!("schema/1.sql")];

/// The errors of PostgreSQL for tables that exist already.
const EXISTS_ALREADY: &[SqlState] = &[
    SqlState::DUPLICATE_TABLE,
    SqlState::DUPLICATE_COLUMN,
    SqlState::DUPLICATE_OBJECT,
];

/// The name of the lock that one migration at a time holds.
const LOCK: i64 = 0x4576_546e_0001;

/// Creates the table that holds the version.
const VERSION_TABLE: &str = "CREATE TABLE IF NOT EXISTS everturn_schema (version integer NOT NULL);";

/// A set of tables with a version.
#[derive(Clone, Copy)]
pub(crate) struct Schema<'a> {
    pub(crate) name: &'a str,
    pub(crate) migrations: &'a [&'a str],
}

/// The tables of a store in a schema.
pub(crate) fn sessions(name: &str) -> Schema<'_> {
    Schema {
        name,
        migrations: MIGRATIONS,
    }
}

impl Schema<'_> {
    /// Creates or migrates the tables. Without `may_migrate`, only checks that they are up to date.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` for tables of a newer version, or of an older one that may not be migrated.
    pub(crate) async fn migrate(self, database: &Database, may_migrate: bool) -> Outcome<()> {
        let migrating = async {
            let mut patience = Patience::new(database.patience);
            loop {
                // A migration is one transaction, so it may be tried again after its connection broke.
                match self.migrate_once(database, may_migrate).await {
                    Err(fault) if fault.is_lost() && patience.wait().await => {}
                    outcome => return outcome,
                }
            }
        };
        database.unhurried(migrating).await
    }

    async fn migrate_once(self, database: &Database, may_migrate: bool) -> Outcome<()> {
        let known = self.migrations.len();
        let version = self.version(database).await?;
        self.check(version)?;
        if version == known {
            return Ok(());
        }
        if !may_migrate {
            return Err(Error::failed_precondition(format!(
                "the schema '{}' has version {version} and this program needs version {known}: run migration_sql()",
                self.name
            ))
            .into());
        }
        let mut connection = database.connection().await?;
        let transaction = connection.transaction().await?;
        transaction
            .batch_execute(&format!("SELECT pg_advisory_xact_lock({LOCK})"))
            .await?;
        // Another process may have migrated meanwhile.
        let statement = self.version_statement();
        let client = transaction.client();
        let rows = database.run_on(client, &statement).await?;
        let there: bool = column(rows.first().ok_or_else(no_answer)?, 0)?;
        let version = if there {
            self.read_version(database, client).await?
        } else {
            0
        };
        self.check(version)?;
        if version < known {
            let migrated = transaction.batch_execute(&self.script(version)).await;
            migrated.map_err(|error| match error.code() {
                Some(code) if EXISTS_ALREADY.contains(code) => self.unknown(&format!(
                    "is said to have version {version} and has tables of another one"
                )),
                _ => error.into(),
            })?;
        }
        Ok(transaction.commit().await?)
    }

    /// Returns the transaction that migrates tables of a version to this program's.
    pub(crate) fn migration(self, version: usize) -> String {
        let version = version.min(self.migrations.len());
        format!("BEGIN;\n{}COMMIT;\n", self.script(version))
    }

    /// Returns the statements that migrate tables of a version to this program's, without a transaction
    /// around them.
    pub(crate) fn script(self, version: usize) -> String {
        let name = quoted(self.name);
        // A role that may use a schema need not be allowed to create one.
        let mut script = format!(
            "DO $everturn$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = {literal}) THEN CREATE SCHEMA {name}; END IF; END $everturn$;\n\
             SET LOCAL search_path TO {name};\n{VERSION_TABLE}\n",
            literal = literal(self.name),
        );
        for migration in &self.migrations[version..] {
            script.push_str(migration);
            script.push('\n');
        }
        let known = self.migrations.len();
        script
            + &format!(
                "DELETE FROM everturn_schema;\nINSERT INTO everturn_schema (version) VALUES ({known});\n"
            )
    }

    async fn version(self, database: &Database) -> Outcome<usize> {
        let rows = database.run(&self.version_statement()).await?;
        if !column::<bool>(rows.first().ok_or_else(no_answer)?, 0)? {
            return Ok(0);
        }
        let connection = database.connection().await?;
        self.read_version(database, &connection).await
    }

    fn version_statement(self) -> Statement<'static> {
        // Functions such as to_regclass may answer from before another process's migration.
        Statement::new(
            "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = $1 AND c.relname = 'everturn_schema')",
        ).with(self.name.to_owned())
    }

    async fn read_version(self, database: &Database, client: &tokio_postgres::Client) -> Outcome<usize> {
        let statement = Statement::new("SELECT version FROM @everturn_schema");
        let rows = database.run_on(client, &statement).await?;
        let version: i32 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
        usize::try_from(version).map_err(|_| self.unknown(&format!("has version {version}")))
    }

    fn check(self, version: usize) -> Outcome<()> {
        let known = self.migrations.len();
        if version <= known {
            return Ok(());
        }
        Err(self.unknown(&format!("has version {version}")))
    }

    /// Creates the error of tables that this program cannot use.
    fn unknown(self, stored: &str) -> Fault {
        let (name, known) = (self.name, self.migrations.len());
        Error::failed_precondition(format!(
            "the schema '{name}' {stored}; this program supports version {known}: use the program that wrote the tables, or a \
             newer one, or choose another schema. The version is the row of {}.everturn_schema",
            quoted(name)
        ))
        .into()
    }
}

fn no_answer() -> Fault {
    Fault::damaged("a question of one answer had none")
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
