//! A loss of power between any two file operations leaves the store whole: what must be on the device is forced there.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod support;

use std::path::Path;
use std::sync::Arc;

use everturn_file::FileStore;
use support::platter::{Loss, Platter, Skipped};
use support::{ROWS, assert_looked_between, check, save_all};

/// The first thing that goes wrong when the power of such a device goes, wherever that is.
async fn broken_by_power_loss(skipped: Skipped) -> Option<String> {
    for dies_before in 0.. {
        let platter = Arc::new(Platter::new(skipped, dies_before));
        let acknowledged = save_all(Path::new("sessions"), platter.clone()).await;
        for loss in [Loss::Everything, Loss::Contents] {
            let restarted = FileStore::options("sessions").disk(Arc::new(platter.restarted(loss)));
            let store = restarted.open().unwrap();
            if let Err(how) = check(&store, acknowledged).await {
                return Some(format!(
                    "{how}, when {loss:?} goes before operation {dies_before}"
                ));
            }
        }
        if acknowledged == ROWS {
            assert_looked_between(dies_before);
            return None;
        }
    }
    None
}

#[tokio::test]
async fn whatever_was_acknowledged_survives_a_loss_of_power() {
    assert_eq!(broken_by_power_loss(Skipped::Nothing).await, None);
}

#[tokio::test]
async fn a_device_that_skips_a_sync_is_caught() {
    for skipped in [Skipped::SyncFile, Skipped::SyncFolder] {
        assert!(broken_by_power_loss(skipped).await.is_some(), "{skipped:?}");
    }
}
