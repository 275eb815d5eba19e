//! Processes may share a folder: no update is lost, and what one saves the others see.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::SessionStore;
use everturn_file::FileStore;
use everturn_testkit::certify::certify_processes;

async fn open(folder: PathBuf) -> Arc<dyn SessionStore> {
    let options = FileStore::options(folder).poll_every(Duration::from_millis(20));
    Arc::new(options.open().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_may_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();

    let certificate = certify_processes("processes::processes_may_share_a_folder", folder.path(), open).await;

    certificate.assert_kept();
}
