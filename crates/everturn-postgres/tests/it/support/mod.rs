//! Support for the tests of the store.

pub(crate) mod proxy;
#[path = "../../../../everturn-sqlite/tests/it/support/rows.rs"]
mod rows;
pub(crate) mod server;

use std::path::Path;

use everturn_agent::{Agent, AgentSession, custom_agent};
use everturn_ai::Message;
use everturn_core::Registry;
use everturn_postgres::{PostgresStore, PostgresStoreOptions};

pub(crate) use self::rows::{at, get, put, row, scope, set, state_of};

/// How the database is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    /// Through `PgBouncer` in transaction mode.
    Pooled,
}

impl Way {
    /// Returns the connection string; `None`, with a printed reason, where there is no such server.
    pub(crate) fn url(self) -> Option<String> {
        let variable = match self {
            Self::Direct => "EVERTURN_TEST_POSTGRES",
            Self::Pooled => "EVERTURN_TEST_PGBOUNCER",
        };
        let url = std::env::var(variable).ok();
        if url.is_none() {
            println!("skipped: {variable} names no server; ./test starts one");
        }
        url
    }
}

/// Returns a random name of a schema.
pub(crate) fn new_schema() -> String {
    format!("test_{:016x}", fastrand::u64(..))
}

/// Returns the name of a schema that stands for a folder, for tests that know stores by their folders.
pub(crate) fn schema_of(folder: &Path) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    format!("folder_{:016x}", hasher.finish())
}

/// A store in a new schema.
pub(crate) struct Fixture {
    pub(crate) store: PostgresStore,
    pub(crate) url: String,
    pub(crate) schema: String,
}

impl Fixture {
    pub(crate) async fn new() -> Option<Self> {
        Self::by(Way::Direct, |options| options).await
    }

    pub(crate) async fn by(
        way: Way,
        set: impl FnOnce(PostgresStoreOptions) -> PostgresStoreOptions,
    ) -> Option<Self> {
        let (url, schema) = (way.url()?, new_schema());
        let store = set(options(&url, &schema)).open().await.unwrap();
        Some(Self { store, url, schema })
    }

    /// Opens the same schema again, with empty caches.
    pub(crate) async fn reopened(&self) -> PostgresStore {
        options(&self.url, &self.schema).open().await.unwrap()
    }
}

pub(crate) fn options(url: &str, schema: &str) -> PostgresStoreOptions {
    PostgresStore::options(url).schema(schema).connections(8)
}

/// Runs a statement on a new connection and returns the first column of the first row, as text.
pub(crate) async fn sql(url: &str, statement: &str) -> Option<String> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let answers = client.simple_query(statement).await.unwrap();
    connection.abort();
    answers.into_iter().find_map(|answer| match answer {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    })
}

/// An agent that answers every message.
pub(crate) fn parrot(store: &PostgresStore) -> Agent {
    custom_agent(&Registry::new(), "parrot", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.add_message(Message::model("heard"));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .store(store.clone())
    .define()
    .unwrap()
}
