//! Checks that watchers receive status changes.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::SnapshotStatus;
use everturn_agent::store::{SessionStore, StatusStream};
use futures::StreamExt;

use super::row::{row, save, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "a watcher receives the current status at once" => the_current_status_comes_first,
    "a watcher receives the last change" => the_last_change_is_received,
    "watching a missing snapshot ends at once" => a_missing_snapshot_ends_the_watch,
}

/// How long a notification may take.
const SOON: Duration = Duration::from_secs(5);

pub(super) async fn next(statuses: &mut StatusStream) -> Result<Option<SnapshotStatus>, String> {
    tokio::time::timeout(SOON, statuses.next())
        .await
        .map_err(|_| "no status came".to_owned())
}

async fn the_current_status_comes_first(store: Arc<dyn SessionStore>) -> Verdict {
    for status in [SnapshotStatus::Pending, SnapshotStatus::Completed] {
        let id = format!("{status:?}");
        let mut written = row("s", &id, 1);
        written.status = status;
        save(&*store, written).await?;
        let Some(mut statuses) = store.watch(&scope(), &id.as_str().into()) else {
            ensure!(
                !store.can_watch(),
                "the store reports that it can watch, and cannot"
            );
            return Ok(());
        };
        let first = next(&mut statuses).await?;
        ensure!(
            first == Some(status),
            "the snapshot is {status:?}, and the watcher received {first:?}"
        );
    }
    Ok(())
}

async fn the_last_change_is_received(store: Arc<dyn SessionStore>) -> Verdict {
    if !store.can_watch() {
        return Ok(());
    }
    for round in 0..20 {
        let id = format!("run-{round}");
        let mut written = row("s", &id, 1);
        written.status = SnapshotStatus::Pending;
        save(&*store, written.clone()).await?;
        let mut statuses = store
            .watch(&scope(), &id.as_str().into())
            .ok_or("the store cannot watch after all")?;
        if round % 2 == 0 {
            next(&mut statuses).await?;
        }

        // A heartbeat changes the snapshot and not its status.
        save(&*store, written.clone()).await?;
        written.status = SnapshotStatus::Aborted;
        save(&*store, written).await?;

        loop {
            match next(&mut statuses).await? {
                Some(SnapshotStatus::Pending) => {}
                Some(SnapshotStatus::Aborted) => break,
                other => return Err(format!("the watcher received {other:?}")),
            }
        }
    }
    Ok(())
}

async fn a_missing_snapshot_ends_the_watch(store: Arc<dyn SessionStore>) -> Verdict {
    if let Some(mut statuses) = store.watch(&scope(), &"nowhere".into()) {
        let first = next(&mut statuses).await?;
        ensure!(first.is_none(), "a snapshot that does not exist is {first:?}");
    }
    Ok(())
}
