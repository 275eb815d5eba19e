//! Checks that deleting deletes.

use std::sync::Arc;

use everturn_agent::store::{Deletion, Detail, SessionQuery, SessionStore, SnapshotQuery};

use super::row::{get, row, save, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "deleted snapshots are in no view" => deleted_snapshots_are_in_no_view,
    "a deleted session is removed and its neighbours stay" => a_deleted_session_is_removed,
    "snapshots that share data with a deleted one stay whole" => sharing_snapshots_stay_whole,
}

async fn delete(store: &dyn SessionStore, deletion: Deletion) -> Result<u64, String> {
    store
        .delete(&scope(), &deletion)
        .await
        .map_err(|error| error.to_string())
}

async fn deleted_snapshots_are_in_no_view(store: Arc<dyn SessionStore>) -> Verdict {
    for (id, seconds) in [("a", 1), ("b", 2), ("c", 3)] {
        save(&*store, row("s", id, seconds)).await?;
    }

    let count = delete(&*store, Deletion::Snapshots(vec!["c".into(), "nowhere".into()])).await?;

    ensure!(
        count == 1,
        "one of two snapshots was there, and {count} were deleted"
    );
    ensure!(get(&*store, "c").await?.is_none(), "the snapshot is still read");
    let latest = store
        .latest(&scope(), &"s".into(), Detail::Metadata)
        .await
        .map_err(|error| error.to_string())?;
    let latest = latest.map(|row| row.snapshot_id.to_string());
    ensure!(
        latest.as_deref() == Some("b"),
        "the latest snapshot is now 'b', not {latest:?}"
    );
    let listed = store
        .list(&scope(), &SnapshotQuery::of("s".into()))
        .await
        .map_err(|error| error.to_string())?;
    ensure!(
        listed.items.len() == 2,
        "{} snapshots are listed",
        listed.items.len()
    );
    save(&*store, row("s", "c", 9)).await?;
    ensure!(get(&*store, "c").await?.is_some(), "an id cannot be used again");
    Ok(())
}

async fn a_deleted_session_is_removed(store: Arc<dyn SessionStore>) -> Verdict {
    for (session, id) in [("gone", "a"), ("gone", "b"), ("stays", "c")] {
        save(&*store, row(session, id, 1)).await?;
    }

    let count = delete(&*store, Deletion::Session("gone".into())).await?;
    let again = delete(&*store, Deletion::Session("gone".into())).await?;

    ensure!(
        (count, again) == (2, 0),
        "deleted {count} snapshots, then {again}"
    );
    let latest = store
        .latest(&scope(), &"gone".into(), Detail::Metadata)
        .await
        .map_err(|error| error.to_string())?;
    ensure!(latest.is_none(), "a deleted session has a latest snapshot");
    let sessions = store
        .sessions(&scope(), &SessionQuery::default())
        .await
        .map_err(|error| error.to_string())?;
    ensure!(sessions.items.len() == 1, "a deleted session is listed");
    ensure!(get(&*store, "c").await?.is_some(), "a neighbour was deleted too");
    Ok(())
}

async fn sharing_snapshots_stay_whole(store: Arc<dyn SessionStore>) -> Verdict {
    let mut parent = row("s", "parent", 1);
    let state = parent.state.as_mut().expect("snapshots here have states");
    state.custom = Some(Arc::new(serde_json::json!({"kept": "k".repeat(50_000)})));
    let mut child = row("s", "child", 2);
    child.parent_id = Some("parent".into());
    let mut grown = state.clone();
    grown.messages.push(everturn_ai::Message::model("an answer"));
    child.state = Some(grown);
    save(&*store, parent).await?;
    save(&*store, child.clone()).await?;

    delete(&*store, Deletion::Snapshots(vec!["parent".into()])).await?;

    ensure!(
        get(&*store, "child").await? == Some(child),
        "deleting its parent changed a snapshot"
    );
    Ok(())
}
