//! Schemas to measure in.

use everturn_postgres::{PostgresStore, PostgresStoreOptions};

/// A schema for one table of results.
pub(crate) struct Schema {
    url: String,
    pub(crate) name: String,
}

impl Schema {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            name: format!("bench_{:016x}", fastrand::u64(..)),
        }
    }

    pub(crate) async fn open(
        &self,
        set: impl FnOnce(PostgresStoreOptions) -> PostgresStoreOptions,
    ) -> PostgresStore {
        self.open_at(&self.url, set).await
    }

    /// Opens the store by another way to the server.
    pub(crate) async fn open_at(
        &self,
        url: &str,
        set: impl FnOnce(PostgresStoreOptions) -> PostgresStoreOptions,
    ) -> PostgresStore {
        let options = PostgresStore::options(url).schema(&self.name);
        set(options.without_listening()).open().await.expect("a store")
    }

    /// Returns a new connection, which ends with the client.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls)
            .await
            .expect("a connection");
        tokio::spawn(connection);
        client
            .batch_execute(&format!("SET search_path TO {}", self.name))
            .await
            .expect("a schema");
        client
    }

    pub(crate) async fn drop(self) {
        let client = self.connect().await;
        client
            .batch_execute(&format!("DROP SCHEMA {} CASCADE", self.name))
            .await
            .expect("it is dropped");
    }
}
