//! A loss of power between any two file operations leaves the store whole: what must be on the device is forced there.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod platter;

use std::sync::Arc;

use everturn_agent::store::{Detail, Precondition, Scope, SessionStore};
use everturn_agent::{SessionId, SessionState, Snapshot, SnapshotId};
use everturn_ai::Message;
use everturn_file::FileStore;
use jiff::Timestamp;
use platter::{Loss, Platter, Skipped};

const ROWS: i64 = 3;

fn row(number: i64) -> Snapshot {
    let id = SnapshotId::from(format!("row-{number}"));
    let mut row = Snapshot::new(id, SessionId::from("s"), Timestamp::from_second(number).unwrap());
    let messages = (0..=number)
        .map(|n| Message::user(format!("message {n}")))
        .collect();
    row.state = Some(SessionState {
        session_id: Some("s".into()),
        messages,
        ..SessionState::default()
    });
    row.parent_id = (number > 1).then(|| SnapshotId::from(format!("row-{}", number - 1)));
    row
}

async fn save(store: &FileStore, number: i64) -> everturn_core::Result<Option<Snapshot>> {
    let row = row(number);
    let (id, tip) = (row.snapshot_id.clone(), row.parent_id.clone());
    let mutation = Arc::new(move |_: Option<&Snapshot>| Ok(Some(row.clone())));
    store
        .save(&Scope::default(), Some(&id), Precondition::Tip(tip), mutation)
        .await
}

/// Saves rows for as long as there is power, and says how many were acknowledged.
async fn save_all(platter: Arc<Platter>) -> i64 {
    let options = FileStore::options("sessions").without_polling().disk(platter);
    let Ok(store) = options.open() else {
        return 0;
    };
    for number in 1..=ROWS {
        if save(&store, number).await.is_err() {
            return number - 1;
        }
    }
    ROWS
}

/// Whether everything that was acknowledged is there, the rest whole or absent, and the session can go on.
async fn check(store: &FileStore, acknowledged: i64) -> Result<(), String> {
    let told = |error: everturn_core::Error| error.to_string();
    for number in 1..=ROWS {
        let id = row(number).snapshot_id;
        let read = store
            .get(&Scope::default(), &id, Detail::Whole)
            .await
            .map_err(told)?;
        if read.is_none() && number <= acknowledged {
            return Err(format!("row {number} is lost"));
        }
        if read.is_some_and(|read| read != row(number)) {
            return Err(format!("row {number} is torn"));
        }
    }
    let latest = store.latest(&Scope::default(), &"s".into(), Detail::Whole).await;
    let tip = latest.map_err(told)?.map_or(0, |row| row.created_at.as_second());
    if tip < acknowledged {
        return Err(format!("the tip went back from {acknowledged} to {tip}"));
    }
    save(store, tip + 1).await.map_err(told)?;
    Ok(())
}

/// The first thing that goes wrong when the power of such a device goes, wherever that is.
async fn broken_by_power_loss(skipped: Skipped) -> Option<String> {
    for dies_before in 0.. {
        let platter = Arc::new(Platter::new(skipped, dies_before));
        let acknowledged = save_all(Arc::clone(&platter)).await;
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
            assert!(
                dies_before > 20,
                "only {dies_before} operations were looked between"
            );
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
