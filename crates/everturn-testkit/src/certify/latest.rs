//! Checks which snapshot is a session's latest.

use std::sync::Arc;

use everturn_agent::store::{
    Deletion, Detail, Precondition, SessionQuery, SessionStore, SnapshotQuery, TIP_MOVED,
};
use everturn_agent::{Snapshot, SnapshotId, SnapshotStatus};
use everturn_core::{Error, Status};
use serde_json::json;

use super::row::{put, row, save, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "the latest snapshot is the one created last" => the_latest_is_the_one_created_last,
    "snapshots of one moment are ordered by id" => a_tie_is_broken_by_id,
    "a rewrite never becomes the latest" => a_rewrite_never_becomes_the_latest,
    "an orphaned snapshot is never the latest" => an_orphan_is_never_the_latest,
    "a session's head is its latest" => the_head_is_the_latest,
    "a precondition is checked inside the commit" => a_precondition_is_checked,
    "a precondition holds for rewrites as well" => a_rewrite_is_checked,
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
        "a session without snapshots has a latest one"
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
        "a rewrite of an older snapshot took the place of {found:?}"
    );
    Ok(())
}

async fn an_orphan_is_never_the_latest(store: Arc<dyn SessionStore>) -> Verdict {
    let orphaned = |id: &str, seconds: i64| {
        let mut row = row("s", id, seconds);
        row.orphaned = true;
        row
    };
    let expect = async |expected: Option<&str>, when: &str| {
        let found = latest(&*store, "s").await?;
        ensure!(
            found.as_deref() == expected,
            "{when}: the latest is {expected:?}, not {found:?}"
        );
        let sessions = store.sessions(&scope(), &SessionQuery::default()).await;
        let listed = sessions.map(|page| {
            page.items
                .into_iter()
                .next()
                .map(|summary| summary.latest.snapshot_id)
        });
        ensure!(
            listed
                .as_ref()
                .is_ok_and(|listed| listed.as_ref().map(SnapshotId::as_str) == expected),
            "{when}: the session is listed by {listed:?} instead of {expected:?}"
        );
        Ok(())
    };

    save(&*store, row("s", "a", 1)).await?;
    save(&*store, row("s", "b", 2)).await?;
    save(&*store, orphaned("c", 3)).await?;
    expect(Some("b"), "a snapshot that was orphaned from the beginning").await?;
    save(&*store, orphaned("b", 2)).await?;
    expect(Some("a"), "a snapshot that was orphaned later").await?;
    let next = row("s", "d", 4);
    let tip = Precondition::Tip(Some("a".into()));
    let committed = store.save(&scope(), Some(&"d".into()), tip, put(next)).await;
    ensure!(
        matches!(committed, Ok(Some(_))),
        "a snapshot after it: {committed:?}"
    );
    expect(Some("d"), "a snapshot after it").await?;
    save(&*store, orphaned("d", 4)).await?;
    save(&*store, row("s", "c", 3)).await?;
    expect(Some("c"), "a snapshot that was recovered").await?;

    save(&*store, orphaned("c", 3)).await?;
    store
        .delete(&scope(), &Deletion::Snapshots(vec!["a".into()]))
        .await
        .map_err(|error| error.to_string())?;
    expect(None, "a session of orphans").await?;
    let mut all = SnapshotQuery::of("s".into());
    all.orphaned = true;
    let kept = store.list(&scope(), &all).await.map(|page| page.items.len());
    ensure!(matches!(kept, Ok(3)), "orphans are kept: {kept:?}");
    Ok(())
}

async fn the_head_is_the_latest(store: Arc<dyn SessionStore>) -> Verdict {
    save(&*store, row("s", "snapshot", 1)).await?;
    let mut head = row("s", "head", 2);
    head.bookkeeping = serde_json::from_value(json!({"listing": {"head": true, "parent": "snapshot"}}))
        .map_err(|error| error.to_string())?;
    save(&*store, head).await?;

    let found = store.latest(&scope(), &"s".into(), Detail::Whole).await;
    let found = found.map_err(|error| error.to_string())?;
    ensure!(
        found.as_ref().is_some_and(Snapshot::is_head),
        "the turn after the snapshot is lost: the latest is {found:?}"
    );
    let late = commit(&*store, row("s", "late", 3), "snapshot").await;
    ensure!(is_told(&late), "a turn beside the head: {late:?}");
    Ok(())
}

/// Saves a snapshot with the precondition that the session's latest has the id `tip`, or that there is none
/// if `tip` is empty.
async fn commit(store: &dyn SessionStore, row: Snapshot, tip: &str) -> Result<Option<Snapshot>, Error> {
    let id = row.snapshot_id.clone();
    let precondition = Precondition::Tip((!tip.is_empty()).then(|| tip.into()));
    store.save(&scope(), Some(&id), precondition, put(row)).await
}

/// Returns whether a late writer was rejected with the right error.
fn is_told(refused: &Result<Option<Snapshot>, Error>) -> bool {
    refused
        .as_ref()
        .is_err_and(|error| error.status() == Status::Aborted && error.is(TIP_MOVED))
}

async fn a_precondition_is_checked(store: Arc<dyn SessionStore>) -> Verdict {
    let first = commit(&*store, row("s", "a", 1), "").await;
    ensure!(
        matches!(first, Ok(Some(_))),
        "the first snapshot of a session: {first:?}"
    );
    let second = commit(&*store, row("s", "b", 2), "a").await;
    ensure!(matches!(second, Ok(Some(_))), "a snapshot at the tip: {second:?}");
    for stale in ["", "a", "nowhere"] {
        let refused = commit(&*store, row("s", "c", 3), stale).await;
        ensure!(is_told(&refused), "'{stale}' with the tip at 'b': {refused:?}");
    }
    let read = store.get(&scope(), &"c".into(), Detail::Metadata).await;
    ensure!(matches!(read, Ok(None)), "a refused snapshot is there: {read:?}");
    Ok(())
}

async fn a_rewrite_is_checked(store: Arc<dyn SessionStore>) -> Verdict {
    save(&*store, row("s", "a", 1)).await?;
    save(&*store, row("s", "b", 2)).await?;
    let mut noted = row("s", "a", 1);
    noted.note = Some("rewritten".to_owned());

    for stale in ["", "a", "nowhere"] {
        let refused = commit(&*store, noted.clone(), stale).await;
        ensure!(is_told(&refused), "'{stale}' with the tip at 'b': {refused:?}");
    }
    let read = store.get(&scope(), &"a".into(), Detail::Metadata).await;
    let kept = matches!(&read, Ok(Some(row)) if row.note.is_none());
    ensure!(kept, "a refused rewrite is there: {read:?}");
    let taken = commit(&*store, noted, "b").await;
    ensure!(
        matches!(taken, Ok(Some(_))),
        "a rewrite with the tip where it should be: {taken:?}"
    );
    Ok(())
}
