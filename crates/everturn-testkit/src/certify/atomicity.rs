//! That concurrent saves behave as if they ran one after the other.

use std::sync::Arc;

use everturn_agent::store::{Detail, Mutation, Precondition, SessionStore};
use everturn_agent::{Snapshot, SnapshotStatus};
use futures::future::join_all;

use super::row::{at, put, row, save, scope};
use super::{Verdict, ensure, list_promises};

const WRITERS: u64 = 16;
const ROUNDS: u64 = 12;

list_promises! {
    "no update is lost under concurrent writers" => no_update_is_lost,
    "of many commits at one tip exactly one succeeds" => one_commit_at_a_tip_succeeds,
    "a state is never torn" => a_state_is_never_torn,
    "of an abort and a completion one wins for good" => one_ending_wins,
}

/// Runs writers at once, in tasks of their own.
async fn at_once<F, Fut, T>(writers: u64, work: F) -> Result<Vec<T>, String>
where
    F: Fn(u64) -> Fut,
    Fut: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let tasks = (0..writers).map(|writer| tokio::spawn(work(writer)));
    join_all(tasks)
        .await
        .into_iter()
        .map(|joined| joined.map_err(|error| error.to_string()))
        .collect()
}

async fn no_update_is_lost(store: Arc<dyn SessionStore>) -> Verdict {
    let mut counter = row("s", "counter", 1);
    counter.status = SnapshotStatus::Pending;
    counter.index = Some(0);
    save(&*store, counter).await?;

    let results = at_once(WRITERS, |_| {
        let store = Arc::clone(&store);
        async move {
            let increment: Mutation = Arc::new(|row: Option<&Snapshot>| {
                let mut row = row
                    .cloned()
                    .ok_or_else(|| everturn_core::Error::internal("the row is not there"))?;
                row.index = Some(row.index.unwrap_or(0) + 1);
                Ok(Some(row))
            });
            for _ in 0..ROUNDS {
                store
                    .save(
                        &scope(),
                        Some(&"counter".into()),
                        Precondition::None,
                        Arc::clone(&increment),
                    )
                    .await?;
            }
            Ok::<(), everturn_core::Error>(())
        }
    })
    .await?;

    ensure!(
        results.iter().all(Result::is_ok),
        "an increment failed: {results:?}"
    );
    let read = store
        .get(&scope(), &"counter".into(), Detail::Metadata)
        .await
        .map_err(|error| error.to_string())?;
    let count = read.and_then(|row| row.index);
    ensure!(
        count == Some(WRITERS * ROUNDS),
        "{} increments made {count:?}",
        WRITERS * ROUNDS
    );
    Ok(())
}

async fn one_commit_at_a_tip_succeeds(store: Arc<dyn SessionStore>) -> Verdict {
    save(&*store, row("s", "tip-0", 0)).await?;
    for round in 1..=i64::try_from(ROUNDS).expect("a small number") {
        let tip = store
            .latest(&scope(), &"s".into(), Detail::Metadata)
            .await
            .map_err(|error| error.to_string())?;
        let tip = tip.ok_or("the session lost its rows")?.snapshot_id;

        let results = at_once(WRITERS, |writer| {
            let (store, tip) = (Arc::clone(&store), tip.clone());
            async move {
                let id = format!("tip-{round}-{writer}");
                let row = row("s", &id, round);
                store
                    .save(
                        &scope(),
                        Some(&id.as_str().into()),
                        Precondition::Tip(Some(tip)),
                        put(row),
                    )
                    .await
            }
        })
        .await?;

        let winners = results.iter().filter(|result| result.is_ok()).count();
        ensure!(winners == 1, "{winners} commits succeeded at one tip");
    }
    Ok(())
}

async fn a_state_is_never_torn(store: Arc<dyn SessionStore>) -> Verdict {
    let versions: Vec<Snapshot> = (0..4)
        .map(|version: usize| {
            let mut written = row("s", "row", 1);
            written.status = SnapshotStatus::Pending;
            written.index = Some(version as u64);
            let texts: Vec<String> = (0..20 + version * 30)
                .map(|n| format!("version {version} message {n}"))
                .collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            written.state = Some(super::row::state("s", &texts));
            written
        })
        .collect();
    save(&*store, versions[0].clone()).await?;

    let results = at_once(WRITERS, |writer| {
        let (store, versions) = (Arc::clone(&store), versions.clone());
        async move {
            for round in 0..ROUNDS {
                let version = usize::try_from((writer + round) % 4).expect("a small number");
                if writer % 2 == 0 {
                    save(&*store, versions[version].clone()).await?;
                } else {
                    let read = super::row::get(&*store, "row").await?;
                    let whole = read.as_ref().is_some_and(|read| versions.contains(read));
                    ensure!(whole, "a reader saw a row that nobody wrote");
                }
            }
            Verdict::Ok(())
        }
    })
    .await?;

    results.into_iter().collect()
}

async fn one_ending_wins(store: Arc<dyn SessionStore>) -> Verdict {
    for round in 0..ROUNDS {
        let id = format!("run-{round}");
        let mut pending = row("s", &id, 1);
        pending.status = SnapshotStatus::Pending;
        save(&*store, pending).await?;

        let results = at_once(WRITERS, |writer| {
            let (store, id) = (Arc::clone(&store), id.clone());
            async move {
                let status = if writer % 2 == 0 {
                    SnapshotStatus::Aborted
                } else {
                    SnapshotStatus::Completed
                };
                let end: Mutation = Arc::new(move |row| {
                    Ok(row
                        .filter(|row| row.status == SnapshotStatus::Pending)
                        .map(|row| Snapshot {
                            status,
                            updated_at: Some(at(2)),
                            ..row.clone()
                        }))
                });
                store
                    .save(&scope(), Some(&id.as_str().into()), Precondition::None, end)
                    .await
            }
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
        let read = super::row::get(&*store, &id).await?.map(|row| row.status);
        ensure!(
            read == Some(written[0].status),
            "the run ended as {:?} and is {read:?}",
            written[0].status
        );
    }
    Ok(())
}
