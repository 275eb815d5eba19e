//! Checks that a store keeps its promises when several processes share it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::{Detail, SessionStore};
use everturn_agent::{SnapshotId, SnapshotStatus};
use futures::future::{BoxFuture, join_all};
use serde::{Deserialize, Serialize};

use super::atomicity::{self, ROUNDS, WRITERS};
use super::branches;
use super::row::{get, row, save, scope};
use super::watching::next;
use super::worker::{Role, Worker, next_order, report};
use super::{Certificate, Verdict, ensure, examine};

type Check = for<'a> fn(&'a mut Crew<'_>) -> BoxFuture<'a, Verdict>;

const PROMISES: [(&str, Check); 7] = [
    ("no update of many processes is lost", |crew| {
        Box::pin(no_update_is_lost(crew))
    }),
    (
        "of many processes' commits at one tip exactly one succeeds",
        |crew| Box::pin(one_commit_at_a_tip_succeeds(crew)),
    ),
    (
        "of many processes' turns that continue one snapshot exactly one succeeds",
        |crew| Box::pin(one_turn_succeeds(crew)),
    ),
    ("a state is never torn for another process", |crew| {
        Box::pin(a_state_is_never_torn(crew))
    }),
    (
        "of an abort and a completion by two processes one wins for good",
        |crew| Box::pin(one_ending_wins(crew)),
    ),
    ("what a process has saved every other process sees", |crew| {
        Box::pin(saves_are_seen(crew))
    }),
    ("a watcher receives another process's change", |crew| {
        Box::pin(a_change_is_received(crew))
    }),
];

/// Runs the checks of atomicity, compare-and-set and watching with sixteen processes on one store.
///
/// `test` is the full name, with modules, of the calling test. This function starts the test program again
/// with only that test; in that process, the call acts as a worker and returns an empty certificate. `open`
/// opens the store in an existing folder, which may already contain a store; the folders are created inside
/// `folder`, which should be empty.
///
/// ```no_run
/// use std::path::PathBuf;
/// use std::sync::Arc;
/// use everturn_agent::store::SessionStore;
/// use everturn_testkit::certify::certify_processes;
/// # async fn my_store(path: PathBuf) -> Arc<dyn SessionStore> { unimplemented!() }
///
/// #[tokio::test]
/// async fn processes_may_share_a_store() {
///     let folder = tempfile::tempdir().unwrap();
///
///     let certificate = certify_processes("processes_may_share_a_store", folder.path(), my_store).await;
///
///     certificate.assert_kept();
/// }
/// ```
pub async fn certify_processes<F>(test: &str, folder: &Path, open: F) -> Certificate
where
    F: AsyncFn(PathBuf) -> Arc<dyn SessionStore>,
{
    match Role::own() {
        Some(Role::Obey) => {
            obey(&open).await;
            return Certificate::default();
        }
        Some(_) => return Certificate::default(),
        None => {}
    }
    let mut certificate = Certificate::default();
    let mut workers = (0..WRITERS)
        .map(|_| Worker::start(test, &Role::Obey))
        .collect::<Result<Vec<_>, _>>();
    for (number, (promise, check)) in PROMISES.into_iter().enumerate() {
        let checked = async {
            let folder = folder.join(number.to_string());
            std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            let workers = workers.as_mut().map_err(|error| error.clone())?;
            let store = open(folder.clone()).await;
            let mut crew = Crew { workers, store };
            crew.all(|_| Order::Open {
                folder: folder.clone(),
            })
            .await?;
            check(&mut crew).await
        };
        certificate.note(promise, examine(checked).await);
    }
    certificate
}

/// A command for a worker, about the store it opened last.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Open {
        folder: PathBuf,
    },
    Increment,
    Commit {
        writer: u64,
        round: u64,
        tip: SnapshotId,
    },
    Continue {
        writer: u64,
        round: u64,
        tip: SnapshotId,
    },
    Rewrite {
        writer: u64,
    },
    End {
        id: String,
        status: SnapshotStatus,
    },
    Save {
        id: String,
        second: i64,
    },
    See {
        id: String,
    },
}

/// Whether a command changed something, or its error.
type Report = Result<bool, String>;

/// Runs a worker until its input ends.
async fn obey<F>(open: &F)
where
    F: AsyncFn(PathBuf) -> Arc<dyn SessionStore>,
{
    let mut store = None;
    while let Some(order) = next_order().await {
        let done: Report = match (order, &store) {
            (Order::Open { folder }, _) => {
                store = Some(open(folder).await);
                Ok(true)
            }
            (order, Some(store)) => follow(store, order).await,
            (order, None) => Err(format!("there is no store to do {order:?} with")),
        };
        report(&done);
    }
}

async fn follow(store: &Arc<dyn SessionStore>, order: Order) -> Report {
    match order {
        Order::Open { .. } => Ok(false),
        Order::Increment => atomicity::increment(&**store).await.map(|()| true),
        Order::Commit { writer, round, tip } => {
            let latest = atomicity::tip(&**store).await?;
            // Another process may already have committed in this round.
            let known = latest == tip || latest.as_str().starts_with(&format!("tip-{round}-"));
            ensure!(known, "the tip was '{tip}' and another process sees '{latest}'");
            let committed = atomicity::commit(&**store, writer, round, tip).await;
            Ok(committed.is_ok())
        }
        Order::Continue { writer, round, tip } => {
            let committed = branches::continue_or_branch(&**store, writer, round, tip).await;
            Ok(committed.is_ok())
        }
        Order::Rewrite { writer } => atomicity::rewrite(&**store, writer).await.map(|()| true),
        Order::End { id, status } => {
            let ended = atomicity::end(&**store, &id, status).await;
            ended.map(|row| row.is_some()).map_err(|error| error.to_string())
        }
        Order::Save { id, second } => save(&**store, row("s", &id, second)).await.map(|_| true),
        Order::See { id } => {
            let (found, latest) = (get(&**store, &id).await?, atomicity::tip(&**store).await?);
            ensure!(
                found.is_some(),
                "'{id}' was saved, and another process does not find it"
            );
            ensure!(
                latest.as_str() == id,
                "'{id}' was saved, and for another process '{latest}' is the latest"
            );
            Ok(true)
        }
    }
}

/// The worker processes, and the store as opened by this process.
struct Crew<'a> {
    workers: &'a mut Vec<Worker>,
    store: Arc<dyn SessionStore>,
}

impl Crew<'_> {
    /// Sends every worker a command at the same time; returns which of them changed something.
    async fn all(&mut self, order: impl Fn(u64) -> Order) -> Result<Vec<bool>, String> {
        for (writer, worker) in (0..).zip(self.workers.iter_mut()) {
            worker.order(&order(writer)).await?;
        }
        let reports = self.workers.iter_mut().map(Worker::next_report::<Report>);
        join_all(reports).await.into_iter().map(outcome).collect()
    }

    /// Sends one worker a command.
    async fn one(&mut self, writer: usize, order: Order) -> Result<bool, String> {
        let worker = &mut self.workers[writer];
        worker.order(&order).await?;
        outcome(worker.next_report().await)
    }
}

fn outcome(report: Result<Option<Report>, String>) -> Report {
    report?.ok_or("a worker ended; does the test that was named call this, and did it panic?")?
}

async fn no_update_is_lost(crew: &mut Crew<'_>) -> Verdict {
    atomicity::begin_counting(&*crew.store).await?;

    crew.all(|_| Order::Increment).await?;

    atomicity::check_count(&*crew.store).await
}

async fn one_commit_at_a_tip_succeeds(crew: &mut Crew<'_>) -> Verdict {
    save(&*crew.store, row("s", "tip-0", 0)).await?;
    for round in 1..=ROUNDS {
        let tip = atomicity::tip(&*crew.store).await?;

        let won = crew
            .all(|writer| Order::Commit {
                writer,
                round,
                tip: tip.clone(),
            })
            .await?;

        let winners = won.iter().filter(|won| **won).count();
        ensure!(winners == 1, "{winners} processes committed at one tip");
    }
    Ok(())
}

async fn one_turn_succeeds(crew: &mut Crew<'_>) -> Verdict {
    let mut tip = branches::begin_branching(&*crew.store).await?;
    for round in 1..=ROUNDS {
        let done = crew
            .all(|writer| Order::Continue {
                writer,
                round,
                tip: tip.clone(),
            })
            .await?;

        tip = branches::judge(round, done.into_iter())?;
    }
    Ok(())
}

async fn a_state_is_never_torn(crew: &mut Crew<'_>) -> Verdict {
    atomicity::begin_rewriting(&*crew.store).await?;

    crew.all(|writer| Order::Rewrite { writer }).await?;
    Ok(())
}

async fn one_ending_wins(crew: &mut Crew<'_>) -> Verdict {
    for round in 0..ROUNDS {
        let id = format!("run-{round}");
        atomicity::begin_run(&*crew.store, &id).await?;

        let ended = crew
            .all(|writer| Order::End {
                id: id.clone(),
                status: atomicity::ending(writer),
            })
            .await?;

        let winners: Vec<u64> = (0..)
            .zip(ended)
            .filter(|(_, won)| *won)
            .map(|(writer, _)| writer)
            .collect();
        ensure!(winners.len() == 1, "{} processes ended one run", winners.len());
        let (read, ended) = (get(&*crew.store, &id).await?, atomicity::ending(winners[0]));
        let status = read.map(|row| row.status);
        ensure!(
            status == Some(ended),
            "the run ended as {ended:?} and is {status:?}"
        );
    }
    Ok(())
}

async fn saves_are_seen(crew: &mut Crew<'_>) -> Verdict {
    for (second, writer) in (1..).zip([0, 3, 7, 15]) {
        let id = format!("row-{second}");
        crew.one(
            writer,
            Order::Save {
                id: id.clone(),
                second,
            },
        )
        .await?;

        crew.all(|_| Order::See { id: id.clone() }).await?;

        let found = crew
            .store
            .get(&scope(), &id.as_str().into(), Detail::Metadata)
            .await;
        ensure!(
            matches!(found, Ok(Some(_))),
            "'{id}' was saved and is read as {found:?}"
        );
    }
    Ok(())
}

async fn a_change_is_received(crew: &mut Crew<'_>) -> Verdict {
    for round in 0..4 {
        let id = format!("run-{round}");
        atomicity::begin_run(&*crew.store, &id).await?;
        let Some(mut statuses) = crew.store.watch(&scope(), &id.as_str().into()) else {
            return Ok(());
        };
        let first = next(&mut statuses).await?;
        ensure!(
            first == Some(SnapshotStatus::Pending),
            "the watcher received {first:?} first"
        );

        let status = SnapshotStatus::Aborted;
        crew.one(round, Order::End { id, status }).await?;

        let received = next(&mut statuses).await?;
        ensure!(received == Some(status), "the watcher received {received:?}");
    }
    Ok(())
}
