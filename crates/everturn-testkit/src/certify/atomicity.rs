//! Checks that concurrent saves are serialisable.
//!
//! The work of a writer and the check of its result are separate functions, so that writers can be tasks here
//! and processes in [`super::processes`].

use std::sync::Arc;

use everturn_agent::store::{Detail, Mutation, Precondition, SessionStore};
use everturn_agent::{Snapshot, SnapshotId, SnapshotStatus};
use everturn_core::Error;
use futures::future::join_all;
use tokio::sync::Barrier;

use super::row::{at, get, put, row, save, scope, state};
use super::{Verdict, ensure, list_promises};

/// The number of concurrent writers.
pub(super) const WRITERS: u64 = 16;

/// The number of writes of each writer.
pub(super) const ROUNDS: u64 = 12;

list_promises! {
    "no update is lost under concurrent writers" => no_update_is_lost,
    "of many commits at one tip exactly one succeeds" => one_commit_at_a_tip_succeeds,
    "a state is never torn" => a_state_is_never_torn,
    "of an abort and a completion one wins permanently" => one_ending_wins,
}

/// Runs writers concurrently, in separate tasks.
pub(super) async fn at_once<F, Fut, T>(store: &Arc<dyn SessionStore>, work: F) -> Result<Vec<T>, String>
where
    F: Fn(u64, Arc<dyn SessionStore>) -> Fut,
    Fut: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    // The barrier keeps a writer from finishing before the last one has begun.
    let start = Arc::new(Barrier::new(usize::try_from(WRITERS).expect("a few")));
    let tasks = (0..WRITERS).map(|writer| {
        let (start, work) = (Arc::clone(&start), work(writer, Arc::clone(store)));
        tokio::spawn(async move {
            start.wait().await;
            work.await
        })
    });
    join_all(tasks)
        .await
        .into_iter()
        .map(|joined| joined.map_err(|error| error.to_string()))
        .collect()
}

async fn no_update_is_lost(store: Arc<dyn SessionStore>) -> Verdict {
    begin_counting(&*store).await?;

    let counted = at_once(&store, |_, store| async move { increment(&*store).await }).await?;

    counted.into_iter().collect::<Verdict>()?;
    check_count(&*store).await
}

pub(super) async fn begin_counting(store: &dyn SessionStore) -> Verdict {
    let mut counter = row("s", "counter", 1);
    counter.status = SnapshotStatus::Pending;
    counter.index = Some(0);
    save(store, counter).await.map(|_| ())
}

/// Makes one writer's increments.
pub(super) async fn increment(store: &dyn SessionStore) -> Verdict {
    let increment = Mutation::new(|row: Option<&Snapshot>| {
        let mut row = row
            .cloned()
            .ok_or_else(|| Error::internal("the snapshot is not there"))?;
        row.index = Some(row.index.unwrap_or(0) + 1);
        Ok(Some(row))
    });
    for _ in 0..ROUNDS {
        let id = SnapshotId::from("counter");
        let saved = store
            .save(&scope(), Some(&id), Precondition::None, increment.clone())
            .await;
        saved.map_err(|error| format!("an increment failed: {error:?}"))?;
    }
    Ok(())
}

pub(super) async fn check_count(store: &dyn SessionStore) -> Verdict {
    let count = get(store, "counter").await?.and_then(|row| row.index);
    let made = WRITERS * ROUNDS;
    ensure!(count == Some(made), "{made} increments made {count:?}");
    Ok(())
}

async fn one_commit_at_a_tip_succeeds(store: Arc<dyn SessionStore>) -> Verdict {
    save(&*store, row("s", "tip-0", 0)).await?;
    for round in 1..=ROUNDS {
        let tip = tip(&*store).await?;

        let results = at_once(&store, |writer, store| {
            let tip = tip.clone();
            async move { commit(&*store, writer, round, tip).await }
        })
        .await?;

        let winners = results.iter().filter(|result| result.is_ok()).count();
        ensure!(winners == 1, "{winners} commits succeeded at one tip");
    }
    Ok(())
}

/// Returns the tip of the session with the commits.
pub(super) async fn tip(store: &dyn SessionStore) -> Result<SnapshotId, String> {
    let latest = store.latest(&scope(), &"s".into(), Detail::Metadata).await;
    let latest = latest.map_err(|error| error.to_string())?;
    Ok(latest.ok_or("the session lost its snapshots")?.snapshot_id)
}

/// Makes one writer's commit on top of a tip.
pub(super) async fn commit(
    store: &dyn SessionStore,
    writer: u64,
    round: u64,
    tip: SnapshotId,
) -> Result<Option<Snapshot>, Error> {
    let id = format!("tip-{round}-{writer}");
    let row = row("s", &id, i64::try_from(round).expect("a small number"));
    store
        .save(
            &scope(),
            Some(&id.as_str().into()),
            Precondition::Tip(Some(tip)),
            put(row),
        )
        .await
}

async fn a_state_is_never_torn(store: Arc<dyn SessionStore>) -> Verdict {
    begin_rewriting(&*store).await?;

    let results = at_once(
        &store,
        |writer, store| async move { rewrite(&*store, writer).await },
    )
    .await?;

    results.into_iter().collect()
}

/// Returns the versions of the snapshot that the writers alternate between.
fn versions() -> [Snapshot; 4] {
    [0, 1, 2, 3].map(|version: u64| {
        let mut written = row("s", "row", 1);
        written.status = SnapshotStatus::Pending;
        written.index = Some(version);
        let texts: Vec<String> = (0..20 + version * 30)
            .map(|n| format!("version {version} message {n}"))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        written.state = Some(state("s", &texts));
        written
    })
}

pub(super) async fn begin_rewriting(store: &dyn SessionStore) -> Verdict {
    let [first, ..] = versions();
    save(store, first).await.map(|_| ())
}

/// Half of the writers write the versions one after the other; the others read, and recognise every version
/// they read.
pub(super) async fn rewrite(store: &dyn SessionStore, writer: u64) -> Verdict {
    let versions = versions();
    for round in 0..ROUNDS {
        let version = usize::try_from((writer + round) % 4).expect("a small number");
        if writer.is_multiple_of(2) {
            save(store, versions[version].clone()).await?;
        } else {
            let read = get(store, "row").await?;
            let whole = read.as_ref().is_some_and(|read| versions.contains(read));
            ensure!(whole, "a reader received a snapshot that was never written");
        }
    }
    Ok(())
}

async fn one_ending_wins(store: Arc<dyn SessionStore>) -> Verdict {
    for round in 0..ROUNDS {
        let id = format!("run-{round}");
        begin_run(&*store, &id).await?;

        let results = at_once(&store, |writer, store| {
            let id = id.clone();
            async move { end(&*store, &id, ending(writer)).await }
        })
        .await?;

        let written: Vec<_> = results
            .iter()
            .filter_map(|result| result.as_ref().ok()?.as_ref())
            .collect();
        ensure!(
            written.len() == 1,
            "{} writers ended one run: {results:?}",
            written.len()
        );
        let read = get(&*store, &id).await?.map(|row| row.status);
        ensure!(
            read == Some(written[0].status),
            "the run ended as {:?} and is {read:?}",
            written[0].status
        );
    }
    Ok(())
}

pub(super) async fn begin_run(store: &dyn SessionStore, id: &str) -> Verdict {
    let mut pending = row("s", id, 1);
    pending.status = SnapshotStatus::Pending;
    save(store, pending).await.map(|_| ())
}

/// Returns the status with which a writer wants to end the run.
pub(super) fn ending(writer: u64) -> SnapshotStatus {
    if writer.is_multiple_of(2) {
        SnapshotStatus::Aborted
    } else {
        SnapshotStatus::Completed
    }
}

/// Ends a run that has not ended. Returns the snapshot if this call ended it.
pub(super) async fn end(
    store: &dyn SessionStore,
    id: &str,
    status: SnapshotStatus,
) -> Result<Option<Snapshot>, Error> {
    let end = Mutation::new(move |row| {
        Ok(row
            .filter(|row| row.status == SnapshotStatus::Pending)
            .map(|row| Snapshot {
                status,
                updated_at: Some(at(2)),
                ..row.clone()
            }))
    });
    store
        .save(&scope(), Some(&id.into()), Precondition::None, end)
        .await
}
