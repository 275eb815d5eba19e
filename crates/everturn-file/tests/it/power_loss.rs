//! A loss of power between any two file operations leaves the store whole: what must be on the device is
//! forced there.

use std::path::Path;
use std::sync::Arc;

use everturn_agent::store::{Journal, JournalKey, JournalRecord, Scope};
use everturn_file::FileStore;
use serde_json::json;

use crate::support::platter::{Loss, Platter, Skipped};
use crate::support::{ROWS, assert_looked_between, check, save_all};

/// Cuts the power of such a device before each of its operations in turn; returns the first promise that
/// breaks.
async fn broken_by_power_loss(skipped: Skipped) -> Option<String> {
    for dies_before in 0.. {
        let platter = Arc::new(Platter::new(skipped, dies_before));
        let acknowledged = save_all(Path::new("sessions"), platter.clone()).await;
        for loss in [Loss::Everything, Loss::Contents] {
            let store = restarted(&platter, loss).await;
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

async fn restarted(platter: &Platter, loss: Loss) -> FileStore {
    let options = FileStore::options("sessions").without_polling();
    options
        .disk(Arc::new(platter.restarted(loss)))
        .open()
        .await
        .unwrap()
}

fn record(sequence: u64) -> JournalRecord {
    JournalRecord {
        sequence,
        body: json!({ "number": sequence }),
    }
}

/// The same of a journal's records.
async fn journal_broken_by_power_loss(skipped: Skipped) -> Option<String> {
    let (scope, key) = (Scope::default(), JournalKey::new("s".into(), "t"));
    for dies_before in 0.. {
        let platter = Arc::new(Platter::new(skipped, dies_before));
        let mut acknowledged = 0;
        let options = FileStore::options("sessions").without_polling();
        if let Ok(store) = options.disk(platter.clone()).open().await {
            while acknowledged < 3
                && store
                    .append(&scope, &key, record(acknowledged), None)
                    .await
                    .is_ok()
            {
                acknowledged += 1;
            }
        }
        for loss in [Loss::Everything, Loss::Contents] {
            let left = restarted(&platter, loss).await.read(&scope, &key).await;
            let is_whole = left.as_ref().is_ok_and(|left| {
                let begun = left.iter().cloned().eq((0..).map(record).take(left.len()));
                begun && left.len() as u64 >= acknowledged
            });
            if !is_whole {
                return Some(format!(
                    "{left:?} of {acknowledged}, when {loss:?} goes before operation {dies_before}"
                ));
            }
        }
        if acknowledged == 3 {
            assert_looked_between(dies_before);
            return None;
        }
    }
    None
}

#[tokio::test]
async fn whatever_was_acknowledged_survives_a_loss_of_power() {
    assert_eq!(broken_by_power_loss(Skipped::Nothing).await, None);
    assert_eq!(journal_broken_by_power_loss(Skipped::Nothing).await, None);
}

#[tokio::test]
async fn a_device_that_skips_a_sync_is_caught() {
    for skipped in [Skipped::SyncFile, Skipped::SyncFolder] {
        assert!(broken_by_power_loss(skipped).await.is_some(), "{skipped:?}");
        assert!(
            journal_broken_by_power_loss(skipped).await.is_some(),
            "{skipped:?}"
        );
    }
}
