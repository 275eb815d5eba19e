//! Devices that fail, and what must be left when they have.

pub(crate) mod dying_disk;
pub(crate) mod platter;

use std::path::Path;
use std::sync::Arc;

use everturn_agent::store::{Detail, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{SessionId, SessionState, Snapshot, SnapshotId};
use everturn_ai::Message;
use everturn_core::{Error, Result};
use everturn_file::{Disk, FileStore};
use jiff::Timestamp;

/// How many rows are saved while the device works.
pub(crate) const ROWS: i64 = 3;

/// Returns the row of that number, which follows the one before it and has one more message.
pub(crate) fn row(number: i64) -> Snapshot {
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

/// Saves a row as it is given.
pub(crate) async fn put(
    store: &FileStore,
    row: Snapshot,
    precondition: Precondition,
) -> Result<Option<Snapshot>> {
    let id = row.snapshot_id.clone();
    let mutation = Mutation::new(move |_| Ok(Some(row.clone())));
    store
        .save(&Scope::default(), Some(&id), precondition, mutation)
        .await
}

async fn save(store: &FileStore, number: i64) -> Result<Option<Snapshot>> {
    let row = row(number);
    let tip = Precondition::Tip(row.parent_id.clone());
    put(store, row, tip).await
}

/// Saves rows as long as the device works, and returns how many were acknowledged.
pub(crate) async fn save_all(root: &Path, disk: Arc<dyn Disk>) -> i64 {
    let Ok(store) = FileStore::options(root).without_polling().disk(disk).open().await else {
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
pub(crate) async fn check(store: &FileStore, acknowledged: i64) -> std::result::Result<(), String> {
    let told = |error: Error| error.to_string();
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

/// A device that lived through everything proves something only if it could have died often.
pub(crate) fn assert_looked_between(operations: usize) {
    assert!(
        operations > 20,
        "only {operations} operations were looked between"
    );
}
