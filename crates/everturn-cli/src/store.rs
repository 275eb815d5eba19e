//! A store, opened without its agents.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::archive::{Archive, Tenants};
use everturn_agent::store::{Scope, SessionStore};
use everturn_agent::{Abort, AgentSession, custom_agent};
use everturn_core::{Error, Registry};
use everturn_file::FileStore;
use everturn_postgres::PostgresStore;
use everturn_sqlite::SqliteStore;
use serde::Serialize;

use crate::arguments::Selection;
use crate::failure::{Failure, Outcome};
use crate::target::scope;

/// The location of a store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Sqlite(PathBuf),
    File(PathBuf),
    Postgres(String),
}

/// An open store.
enum Opened {
    Sqlite(SqliteStore),
    File(FileStore),
    Postgres(PostgresStore),
}

/// The result of verifying a store or session.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Checked {
    /// The number of snapshots read.
    pub(crate) snapshots: u64,
    pub(crate) problems: Vec<String>,
    /// The repaired conversations.
    #[serde(rename = "mended", skip_serializing_if = "Vec::is_empty")]
    pub(crate) repaired: Vec<String>,
}

impl Store {
    /// Parses `sqlite:PATH`, `file:DIR` or `postgres:URL`.
    pub(crate) fn parse(text: &str) -> Outcome<Self> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            Some(("postgres", url)) if !url.is_empty() => Ok(Self::Postgres(url.to_owned())),
            _ => Err(Failure::wrong(format!("'{text}' does not name a store"))
                .or_next("give --store sqlite:PATH, --store file:DIR or --store postgres:URL")),
        }
    }

    /// Opens the store, which must exist, so that a mistyped path is not taken for an empty store.
    async fn open(&self) -> Outcome<Opened> {
        match self {
            Self::Sqlite(path) => {
                check_exists(path)?;
                Ok(Opened::Sqlite(SqliteStore::open(path).await?))
            }
            Self::File(folder) => {
                check_exists(folder)?;
                Ok(Opened::File(FileStore::open(folder).await?))
            }
            Self::Postgres(url) => Ok(Opened::Postgres(PostgresStore::open(url).await?)),
        }
    }

    /// Creates the store if it does not exist, for a command that imports sessions.
    pub(crate) async fn create(&self) -> Outcome<()> {
        match self {
            Self::Sqlite(path) => SqliteStore::open(path).await?.close().await?,
            Self::File(folder) => drop(FileStore::open(folder).await?),
            Self::Postgres(_) => {}
        }
        Ok(())
    }

    pub(crate) async fn sessions(&self) -> Outcome<Arc<dyn SessionStore>> {
        Ok(match self.open().await? {
            Opened::Sqlite(store) => Arc::new(store),
            Opened::File(store) => Arc::new(store),
            Opened::Postgres(store) => Arc::new(store),
        })
    }

    pub(crate) async fn archive(&self, scope: Scope) -> Outcome<Archive> {
        Ok(Archive::of(self.sessions().await?, scope))
    }

    /// Returns the selected tenant, with its readable name.
    ///
    /// # Errors
    /// `NOT_FOUND` if the store has no data of the tenant.
    pub(crate) async fn tenant(&self, selection: &Selection) -> Outcome<Scope> {
        let found = Tenants::of(self.sessions().await?).get(&scope(selection)).await;
        found.map_err(|error| {
            Failure::from(error)
                .or_next("`everturn tenants` lists the tenants of a store and the ids of their principals")
        })
    }

    /// Reads and verifies everything: all tenants of a database, the given ones of files.
    pub(crate) async fn verify(&self, tenants: &[Scope]) -> Outcome<Checked> {
        let (snapshots, problems) = match self.open().await? {
            Opened::Sqlite(store) => {
                let found = store.verify().await?;
                (found.snapshots, found.problems)
            }
            Opened::File(store) => {
                let (mut snapshots, mut problems) = (0, Vec::new());
                for tenant in tenants {
                    let found = store.verify(tenant).await?;
                    snapshots += found.snapshots;
                    problems.extend(found.problems);
                }
                (snapshots, problems)
            }
            Opened::Postgres(store) => {
                let found = store.verify().await?;
                (found.snapshots, found.problems)
            }
        };
        Ok(Checked {
            snapshots,
            problems,
            repaired: Vec::new(),
        })
    }

    /// Aborts a background run. Its worker, in any process, reads the status of its snapshot.
    pub(crate) async fn abort(&self, scope: Scope, id: &str) -> Outcome<Option<Abort>> {
        // Only agents change the status of a run, so this defines one that never runs.
        let operator = custom_agent(&Registry::new(), "operator", |session: AgentSession| async move {
            Ok(session.result())
        })
        .store(self.sessions().await?)
        .scope(move |_| scope.clone())
        .build()?;
        Ok(operator.abort(id).await?)
    }
}

fn check_exists(path: &Path) -> Outcome<()> {
    if path.exists() {
        return Ok(());
    }
    Err(Failure::from(Error::not_found(format!(
        "there is no store at {}",
        path.display()
    )))
    .or_next("check the path; `everturn sessions import` creates a store"))
}

/// Formats the store as an argument, without the password of a database.
impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Postgres(url) => match url.rsplit_once('@') {
                Some((_, host)) => write!(f, "postgres:…@{host}"),
                None => write!(f, "postgres:{url}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_named_by_kind_and_place() {
        let parsed = |text: &str| Store::parse(text).ok();

        assert_eq!(parsed("sqlite:a.db"), Some(Store::Sqlite("a.db".into())));
        assert_eq!(
            parsed("file:/var/sessions"),
            Some(Store::File("/var/sessions".into()))
        );
        let database = Some(Store::Postgres("postgres://host/db".into()));
        assert_eq!(parsed("postgres://host/db"), database);
        assert_eq!(parsed("postgres:postgres://host/db"), database);
        for wrong in ["a.db", "sqlite:", "mysql:a", ""] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let store = Store::parse("postgres://ann:secret@host/db").unwrap();

        assert_eq!(store.to_string(), "postgres:…@host/db");
    }
}
