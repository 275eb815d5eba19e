//! Checks that all background runs are found. A store that cannot list them is excused.

use std::sync::Arc;

use everturn_agent::store::{Deletion, PendingQuery, Scope, SessionStore};
use everturn_agent::{Snapshot, SnapshotStatus};

use super::row::{at, row, save_in, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "background runs of all tenants are found until they are over" => runs_are_found,
    "silent background runs are distinguished from those with a recent heartbeat" => silent_runs_are_distinguished,
    "background runs are listed in order, page by page" => runs_are_paged,
}

fn run(session: &str, id: &str, seconds: i64) -> Snapshot {
    let mut run = row(session, id, seconds);
    run.status = SnapshotStatus::Pending;
    run.heartbeat_at = Some(at(seconds));
    run
}

/// Returns the contents of all pages of a query, as `tenant/snapshot`; `None` if the store cannot list runs.
async fn found(
    store: &dyn SessionStore,
    mut query: PendingQuery,
) -> Result<Option<Vec<Vec<String>>>, String> {
    let mut pages = Vec::new();
    loop {
        let page = store.pending(&query).await.map_err(|error| error.to_string())?;
        let Some(page) = page else {
            return Ok(None);
        };
        ensure!(
            page.items.iter().all(|run| run.snapshot.state.is_none()),
            "states are not part of a listing"
        );
        let name = |run: &everturn_agent::store::PendingRun| {
            format!("{}/{}", run.scope.as_str(), run.snapshot.snapshot_id)
        };
        pages.push(page.items.iter().map(name).collect());
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(Some(pages)),
        }
    }
}

async fn all(store: &dyn SessionStore, query: PendingQuery) -> Result<Option<Vec<String>>, String> {
    Ok(found(store, query).await?.map(|pages| pages.concat()))
}

async fn runs_are_found(store: Arc<dyn SessionStore>) -> Verdict {
    let (own, other) = (scope(), Scope::new("stranger"));
    if all(&*store, PendingQuery::default()).await?.is_none() {
        return Ok(());
    }
    save_in(&*store, &own, row("s", "turn", 1)).await?;
    for (tenant, id, seconds) in [(&own, "a", 2), (&other, "b", 3), (&own, "c", 4), (&other, "d", 5)] {
        save_in(&*store, tenant, run("s", id, seconds)).await?;
    }
    let runs = all(&*store, PendingQuery::default()).await?.unwrap_or_default();
    ensure!(
        runs == ["global/a", "stranger/b", "global/c", "stranger/d"],
        "the running background runs: {runs:?}"
    );

    for (tenant, id, status) in [
        (&own, "a", SnapshotStatus::Completed),
        (&other, "b", SnapshotStatus::Aborted),
    ] {
        let mut over = run("s", id, 2);
        over.status = status;
        save_in(&*store, tenant, over).await?;
    }
    store
        .delete(&own, &Deletion::Snapshots(vec!["c".into()]))
        .await
        .map_err(|error| error.to_string())?;
    let runs = all(&*store, PendingQuery::default()).await?.unwrap_or_default();
    ensure!(
        runs == ["stranger/d"],
        "one run is neither over nor deleted: {runs:?}"
    );
    Ok(())
}

async fn silent_runs_are_distinguished(store: Arc<dyn SessionStore>) -> Verdict {
    for (id, seconds) in [("early", 1), ("kept", 2), ("late", 9)] {
        save_in(&*store, &scope(), run("s", id, seconds)).await?;
    }
    let mut beaten = run("s", "kept", 2);
    beaten.heartbeat_at = Some(at(8));
    save_in(&*store, &scope(), beaten).await?;
    let mut mute = run("s", "mute", 1);
    mute.heartbeat_at = None;
    save_in(&*store, &scope(), mute).await?;

    let Some(silent) = all(&*store, PendingQuery::silent_since(at(5))).await? else {
        return Ok(());
    };
    let none = all(&*store, PendingQuery::silent_since(at(1))).await?;
    let every = all(&*store, PendingQuery::default()).await?.unwrap_or_default();

    ensure!(silent == ["global/early"], "silent for longest: {silent:?}");
    ensure!(
        none.as_ref().is_some_and(Vec::is_empty),
        "a sign of life of that very moment is none older: {none:?}"
    );
    ensure!(every.len() == 4, "silent or not: {every:?}");
    Ok(())
}

async fn runs_are_paged(store: Arc<dyn SessionStore>) -> Verdict {
    for (tenant, id, seconds) in [
        ("global", "e", 5),
        ("stranger", "b", 2),
        ("global", "a", 1),
        ("stranger", "d", 4),
        ("global", "c", 3),
    ] {
        save_in(&*store, &Scope::new(tenant), run("s", id, seconds)).await?;
    }
    let mut query = PendingQuery::default();
    query.limit = 2;

    let Some(pages) = found(&*store, query).await? else {
        return Ok(());
    };

    ensure!(
        pages
            == [
                vec!["global/a", "stranger/b"],
                vec!["global/c", "stranger/d"],
                vec!["global/e"]
            ],
        "oldest first, two at a time: {pages:?}"
    );
    Ok(())
}
