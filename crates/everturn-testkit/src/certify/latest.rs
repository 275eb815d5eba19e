//! Which row is a session's latest.

use std::sync::Arc;

use everturn_agent::SnapshotStatus;
use everturn_agent::store::{Detail, Precondition, SessionStore, TIP_MOVED};
use everturn_core::{Error, Status};

use super::row::{put, row, save, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "the latest row is the one created last" => the_latest_is_the_one_created_last,
    "rows of one moment are ordered by id" => a_tie_is_broken_by_id,
    "a rewrite never becomes the latest" => a_rewrite_never_becomes_the_latest,
    "a precondition is checked inside the commit" => a_precondition_is_checked,
}

async fn latest(store: &dyn SessionStore, session: &str) -> Result<Option<String>, String> {
    let row = store
        .latest(&scope(), &session.into(), Detail::Whole)
        .await
        .map_err(|error| error.to_string())?;
    Ok(row.map(|row| row.snapshot_id.to_string()))
}

async fn the_latest_is_the_one_created_last(store: Arc<dyn SessionStore>) -> Verdict {
    ensure!(
        latest(&*store, "s").await?.is_none(),
        "a session without rows has a latest one"
    );
    let empty = store.latest(&scope(), &"".into(), Detail::Whole).await;
    ensure!(
        empty.as_ref().err().map(Error::status) == Some(Status::InvalidArgument),
        "no session id: {empty:?}"
    );

    let mut pending = row("s", "m", 30);
    pending.status = SnapshotStatus::Pending;
    for written in [
        row("s", "z", 20),
        pending,
        row("s", "a", 25),
        row("other", "q", 99),
    ] {
        save(&*store, written).await?;
    }

    let found = latest(&*store, "s").await?;
    ensure!(
        found.as_deref() == Some("m"),
        "the latest of any status is 'm', not {found:?}"
    );
    Ok(())
}

async fn a_tie_is_broken_by_id(store: Arc<dyn SessionStore>) -> Verdict {
    for id in ["b", "c", "a"] {
        save(&*store, row("s", id, 1)).await?;
    }

    let found = latest(&*store, "s").await?;
    ensure!(
        found.as_deref() == Some("c"),
        "the greatest id of the moment is 'c', not {found:?}"
    );
    Ok(())
}

async fn a_rewrite_never_becomes_the_latest(store: Arc<dyn SessionStore>) -> Verdict {
    let mut pending = row("s", "old", 1);
    pending.status = SnapshotStatus::Pending;
    save(&*store, pending.clone()).await?;
    save(&*store, row("s", "new", 2)).await?;

    pending.status = SnapshotStatus::Completed;
    save(&*store, pending).await?;

    let found = latest(&*store, "s").await?;
    ensure!(
        found.as_deref() == Some("new"),
        "a rewrite of an older row took the place of {found:?}"
    );
    Ok(())
}

async fn a_precondition_is_checked(store: Arc<dyn SessionStore>) -> Verdict {
    let tip = |id: &str| Precondition::Tip((!id.is_empty()).then(|| id.into()));
    let commit = async |id: &str, seconds: i64, precondition: Precondition| {
        store
            .save(
                &scope(),
                Some(&id.into()),
                precondition,
                put(row("s", id, seconds)),
            )
            .await
    };

    let first = commit("a", 1, tip("")).await;
    ensure!(
        matches!(first, Ok(Some(_))),
        "the first row of a session: {first:?}"
    );
    let second = commit("b", 2, tip("a")).await;
    ensure!(matches!(second, Ok(Some(_))), "a row at the tip: {second:?}");
    for stale in [tip(""), tip("a"), tip("nowhere")] {
        let refused = commit("c", 3, stale.clone()).await;
        let error = refused.as_ref().err();
        let is_told = error.is_some_and(|error| error.status() == Status::Aborted && error.is(TIP_MOVED));
        ensure!(is_told, "{stale:?} with the tip at 'b': {refused:?}");
    }
    let read = store.get(&scope(), &"c".into(), Detail::Metadata).await;
    ensure!(matches!(read, Ok(None)), "a refused row is there: {read:?}");
    Ok(())
}
