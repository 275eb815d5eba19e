//! Every acknowledged save is there and complete after the process was killed at any point.

use std::path::PathBuf;
use std::sync::Arc;

use everturn_agent::store::SessionStore;
use everturn_file::FileStore;
use everturn_testkit::certify::certify_crashes;

async fn open(folder: PathBuf) -> Arc<dyn SessionStore> {
    Arc::new(FileStore::open(folder).await.unwrap())
}

#[tokio::test]
async fn every_acknowledged_turn_survives_three_hundred_kills() {
    let folder = tempfile::tempdir().unwrap();
    let test = "crashes::every_acknowledged_turn_survives_three_hundred_kills";

    let certificate = certify_crashes(test, folder.path(), 300, open).await;

    certificate.assert_kept();
}
