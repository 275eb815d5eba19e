//! A save that is cut off between any two file operations leaves the store whole.

use everturn_agent::SnapshotStatus;
use everturn_agent::store::{Detail, PendingQuery, Precondition, Scope, SessionStore};
use everturn_file::FileStore;

use crate::support::dying_disk::DyingDisk;
use crate::support::{ROWS, assert_looked_between, check, put, row, save_all};

#[tokio::test]
async fn whatever_was_acknowledged_is_there_and_the_rest_is_whole_or_absent() {
    for dies_before in 0.. {
        let folder = tempfile::tempdir().unwrap();

        let acknowledged = save_all(folder.path(), DyingDisk::before(dies_before)).await;

        let store = FileStore::open(folder.path()).await.unwrap();
        let left = check(&store, acknowledged).await;
        assert_eq!(left, Ok(()), "when dying before operation {dies_before}");
        if acknowledged == ROWS {
            assert_looked_between(dies_before);
            return;
        }
    }
}

#[tokio::test]
async fn an_acknowledged_background_run_is_found_whatever_was_cut_off() {
    for dies_before in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::options(folder.path())
            .without_polling()
            .disk(DyingDisk::before(dies_before))
            .open()
            .await;
        let mut run = row(1);
        run.status = SnapshotStatus::Pending;
        let mut over = run.clone();
        over.status = SnapshotStatus::Completed;

        let mut acknowledged = [false, false];
        if let Ok(store) = store {
            acknowledged[0] = put(&store, run, Precondition::None).await.is_ok();
            acknowledged[1] = acknowledged[0] && put(&store, over, Precondition::None).await.is_ok();
        }

        let store = FileStore::open(folder.path()).await.unwrap();
        let stored = store
            .get(&Scope::default(), &"row-1".into(), Detail::Metadata)
            .await
            .unwrap();
        let pending = stored.is_some_and(|row| row.status == SnapshotStatus::Pending);
        for look in 1..=2 {
            let found = store.pending(&PendingQuery::default()).await.unwrap().unwrap();
            assert_eq!(
                found.items.len(),
                usize::from(pending),
                "look {look} after dying before operation {dies_before}"
            );
        }
        if acknowledged[1] {
            assert_looked_between(dies_before);
            return;
        }
    }
}
