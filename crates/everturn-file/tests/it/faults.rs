//! The store keeps its deadlines and names its losses.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_agent::SnapshotId;
use everturn_agent::store::SessionStore;
use everturn_file::FileStore;
use everturn_testkit::certify::certify_faults;
use everturn_testkit::certify::faults::{Fault, Faults};
use tempfile::TempDir;

const BUSY_TIMEOUT: Duration = Duration::from_millis(300);

struct Folder(TempDir);

impl Folder {
    fn file(&self, snapshot: &SnapshotId) -> PathBuf {
        self.0.path().join(format!("global/{snapshot}.json"))
    }
}

#[async_trait]
impl Faults for Folder {
    async fn open(&self) -> Arc<dyn SessionStore> {
        let options = FileStore::options(self.0.path()).busy_timeout(BUSY_TIMEOUT);
        Arc::new(options.open().await.unwrap())
    }

    fn busy_timeout(&self) -> Duration {
        BUSY_TIMEOUT
    }

    async fn hold_lock(&self) -> Fault<Box<dyn Send>> {
        let file = File::options()
            .write(true)
            .open(self.0.path().join("global/.lock"))
            .unwrap();
        file.lock().unwrap();
        Fault::Done(Box::new(file))
    }

    async fn damage(&self, snapshot: &SnapshotId) -> Fault<()> {
        let text = std::fs::read_to_string(self.file(snapshot)).unwrap();
        std::fs::write(self.file(snapshot), text.replacen("message 2", "message 7", 1)).unwrap();
        Fault::Done(())
    }

    async fn remove(&self, snapshot: &SnapshotId) -> Fault<()> {
        std::fs::remove_file(self.file(snapshot)).unwrap();
        Fault::Done(())
    }
}

#[tokio::test]
async fn deadlines_are_kept_and_losses_are_named() {
    let certificate = certify_faults(|| Folder(tempfile::tempdir().unwrap())).await;

    certificate.assert_kept();
}
