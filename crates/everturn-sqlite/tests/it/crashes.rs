//! Every acknowledged save is there and complete after the process was killed at any point.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::SessionStore;
use everturn_sqlite::{Durability, SqliteStore};
use everturn_testkit::certify::certify_crashes;

/// The death of a process takes nothing at either level of durability; some processes have one, some the
/// other.
async fn open(folder: PathBuf) -> Arc<dyn SessionStore> {
    let durability = if fastrand::bool() {
        Durability::Full
    } else {
        Durability::Normal
    };
    let options = SqliteStore::options(folder.join("sessions.db")).durability(durability);
    Arc::new(options.open().await.unwrap())
}

fn stores(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path().join("sessions.db"))
}

#[tokio::test]
async fn every_acknowledged_turn_survives_three_hundred_kills() {
    let folder = tempfile::tempdir().unwrap();
    let test = "crashes::every_acknowledged_turn_survives_three_hundred_kills";

    let certificate = certify_crashes(test, folder.path(), 300, open).await;

    certificate.assert_kept();
    for store in stores(folder.path()) {
        let found = SqliteStore::open(store).await.unwrap().verify().await.unwrap();
        assert!(found.is_clean(), "{:#?}", found.problems);
    }
}
