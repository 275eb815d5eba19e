//! The store keeps its deadlines and names its losses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use everturn_agent::SnapshotId;
use everturn_agent::store::SessionStore;
use everturn_sqlite::{Durability, SqliteStore};
use everturn_testkit::certify::certify_faults;
use everturn_testkit::certify::faults::{Fault, Faults};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::path;

const BUSY_TIMEOUT: Duration = Duration::from_millis(300);

struct Database(TempDir);

impl Database {
    fn change(&self, sql: &str) {
        let connection = Connection::open(path(self.0.path())).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        connection.execute_batch(sql).unwrap();
    }
}

/// A lock that is held until this is dropped.
struct Held(Mutex<Connection>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.get_mut().unwrap().execute_batch("ROLLBACK").unwrap();
    }
}

#[async_trait]
impl Faults for Database {
    async fn open(&self) -> Arc<dyn SessionStore> {
        let options = SqliteStore::options(path(self.0.path()))
            .durability(Durability::Normal)
            .busy_timeout(BUSY_TIMEOUT);
        Arc::new(options.open().await.unwrap())
    }

    fn busy_timeout(&self) -> Duration {
        BUSY_TIMEOUT
    }

    async fn hold_lock(&self) -> Fault<Box<dyn Send>> {
        let connection = Connection::open(path(self.0.path())).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Fault::Done(Box::new(Held(Mutex::new(connection))))
    }

    async fn damage(&self, _: &SnapshotId) -> Fault<()> {
        self.change(
            "UPDATE message SET body = replace(body, 'message 2', 'message 7') WHERE typeof(body) = 'text'",
        );
        Fault::Done(())
    }

    async fn remove(&self, snapshot: &SnapshotId) -> Fault<()> {
        self.change(&format!("DELETE FROM snapshot WHERE id = '{snapshot}'"));
        Fault::Done(())
    }
}

#[tokio::test]
async fn deadlines_are_kept_and_losses_are_named() {
    let certificate = certify_faults(|| Database(tempfile::tempdir().unwrap())).await;

    certificate.assert_kept();
}
