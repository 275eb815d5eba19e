//! Checks that a store reports external faults: a lock held by another process, damaged data, a missing tip.
//!
//! Causing such a fault depends on the store, so the store's test implements it: see [`Faults`].

mod fault_defects;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use everturn_agent::store::{Detail, Precondition, SessionStore};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Status};
use futures::future::join_all;

pub use self::fault_defects::{DefectiveBackend, FaultDefect};
use super::row::{put, row, save, scope};
use super::{Certificate, Verdict, ensure, examine};

/// The number of saves that wait for the lock at the same time.
const SAVES: usize = 40;

/// How late a save may end after its deadline on a busy machine.
const GRACE: Duration = Duration::from_secs(5);

/// The number of turns of the session that is damaged.
const TURNS: i64 = 4;

/// The faults that a store's test can cause.
///
/// A store that cannot have such a fault, such as one in memory, returns [`Fault::Impossible`].
#[async_trait]
pub trait Faults: Send + Sync {
    /// Opens the faulty store without any cached data. Called again after each fault.
    async fn open(&self) -> Arc<dyn SessionStore>;

    /// Returns how long a save of that store waits for another process.
    fn busy_timeout(&self) -> Duration;

    /// Takes the lock that a save needs, like another process, and holds it until the guard is dropped.
    async fn hold_lock(&self) -> Fault<Box<dyn Send>>;

    /// Changes one or more bytes of a stored body of this snapshot, such that it can still be parsed.
    async fn damage(&self, snapshot: &SnapshotId) -> Fault<()>;

    /// Removes this snapshot, which is the latest of its session, without using the store.
    async fn remove(&self, snapshot: &SnapshotId) -> Fault<()>;
}

/// The result of causing a fault.
#[derive(Debug)]
pub enum Fault<T> {
    /// The fault was caused.
    Done(T),
    /// This store cannot have the fault, for this reason.
    Impossible(&'static str),
}

/// Checks that a store keeps its deadlines while another process holds its lock, and that its errors name
/// damaged or lost data.
///
/// Each promise is checked on a store from `make`.
pub async fn certify_faults<F>(mut make: impl FnMut() -> F) -> Certificate
where
    F: Faults,
{
    let mut certificate = Certificate::default();
    let faults = make();
    certificate.note_or_excuse(
        "a deadline is kept while the lock is held elsewhere",
        Box::pin(examine_fault(a_deadline_is_kept(&faults))).await,
    );
    let faults = make();
    certificate.note_or_excuse("damage is named", examine_fault(damage_is_named(&faults)).await);
    let faults = make();
    certificate.note_or_excuse(
        "a missing tip is named",
        examine_fault(a_missing_tip_is_named(&faults)).await,
    );
    certificate
}

/// A verdict, or the reason why the promise cannot be broken.
pub(super) type Examined = Result<Option<&'static str>, String>;

async fn examine_fault(check: impl Future<Output = Examined>) -> Examined {
    let mut excuse = None;
    let checked = async {
        excuse = check.await?;
        Ok(())
    };
    let verdict: Verdict = examine(checked).await;
    verdict.map(|()| excuse)
}

/// Returns from a check with the reason if the fault is impossible.
macro_rules! done {
    ($fault:expr) => {
        match $fault {
            Fault::Done(done) => done,
            Fault::Impossible(reason) => return Ok(Some(reason)),
        }
    };
}

fn id(turn: i64) -> SnapshotId {
    SnapshotId::from(format!("turn-{turn}"))
}

/// A turn of the session, with the messages of all earlier turns.
fn turn(number: i64) -> Snapshot {
    let mut turn = row("s", id(number).as_str(), number);
    let texts: Vec<String> = (0..=number)
        .map(|turn| format!("message {turn} of the session"))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    turn.state = Some(super::row::state("s", &texts));
    turn.parent_id = (number > 1).then(|| id(number - 1));
    turn
}

async fn talk(store: &dyn SessionStore) -> Verdict {
    for number in 1..=TURNS {
        save(store, turn(number)).await?;
    }
    Ok(())
}

async fn a_deadline_is_kept(faults: &dyn Faults) -> Examined {
    let store = faults.open().await;
    talk(&*store).await?;
    let lock = done!(faults.hold_lock().await);

    let asked = Instant::now();
    let waiting = join_all((0..SAVES).map(|number| {
        let store = Arc::clone(&store);
        async move {
            let row = row(&format!("s{number}"), &format!("waiting-{number}"), 1);
            let id = row.snapshot_id.clone();
            let saved = store
                .save(&scope(), Some(&id), Precondition::None, put(row))
                .await;
            (saved, asked.elapsed())
        }
    }));
    let reads = async {
        let read = store.get(&scope(), &id(TURNS), Detail::Whole).await;
        let latest = store.latest(&scope(), &SessionId::from("s"), Detail::Whole).await;
        (read, latest, asked.elapsed())
    };
    let (outcomes, (read, latest, took)) = futures::join!(waiting, reads);

    let timeout = faults.busy_timeout();
    ensure!(
        matches!(read, Ok(Some(_))) && matches!(latest, Ok(Some(_))),
        "while the lock is held, reads answer {read:?} and {latest:?}"
    );
    ensure!(
        took < timeout.max(GRACE),
        "reads waited for the lock, for {took:?}"
    );
    for (saved, took) in outcomes {
        let status = saved.as_ref().err().map(Error::status);
        ensure!(
            status == Some(Status::Unavailable),
            "while the lock is held, a save answers {saved:?}"
        );
        ensure!(
            took < timeout + GRACE,
            "of {SAVES} saves that may each wait for {timeout:?}, one took {took:?}"
        );
    }
    drop(lock);
    save(&*store, turn(TURNS + 1)).await?;
    Ok(None)
}

/// Whether an error reports lost data, and names the session and the snapshot.
fn names(error: &Error, snapshot: &SnapshotId) -> bool {
    let message = error.message();
    error.status() == Status::DataLoss
        && message.contains("'s'")
        && message.contains(&format!("'{snapshot}'"))
}

async fn damage_is_named(faults: &dyn Faults) -> Examined {
    let store = faults.open().await;
    talk(&*store).await?;
    drop(store);
    let last = id(TURNS);
    done!(faults.damage(&last).await);

    let store = faults.open().await;
    let by_id = store.get(&scope(), &last, Detail::Whole).await;
    let latest = store.latest(&scope(), &SessionId::from("s"), Detail::Whole).await;

    for read in [by_id, latest] {
        match read {
            Ok(Some(read)) => ensure!(read == turn(TURNS), "a damaged body is read as if it were whole"),
            Ok(None) => return Err("a damaged snapshot is taken for one that does not exist".to_owned()),
            Err(error) => ensure!(
                error.status() == Status::DataLoss && error.message().contains(last.as_str()),
                "damage is reported as {error:?}"
            ),
        }
    }
    let latest = store.latest(&scope(), &SessionId::from("s"), Detail::Whole).await;
    ensure!(
        latest.as_ref().err().is_some_and(|error| names(error, &last)),
        "the session's latest snapshot is damaged, and the store answers {latest:?}"
    );
    Ok(None)
}

async fn a_missing_tip_is_named(faults: &dyn Faults) -> Examined {
    let store = faults.open().await;
    talk(&*store).await?;
    drop(store);
    let last = id(TURNS);
    done!(faults.remove(&last).await);

    let store = faults.open().await;
    let latest = store.latest(&scope(), &SessionId::from("s"), Detail::Whole).await;
    let next = turn(TURNS + 1);
    let tip = Precondition::Tip(Some(id(TURNS - 1)));
    let saved = store
        .save(&scope(), Some(&next.snapshot_id.clone()), tip, put(next))
        .await;

    ensure!(
        latest.as_ref().err().is_some_and(|error| names(error, &last)),
        "the session's latest snapshot is missing, and the store answers {latest:?}"
    );
    ensure!(
        saved.as_ref().err().is_some_and(|error| names(error, &last)),
        "a turn that follows the snapshot before the missing one is saved: {saved:?}"
    );
    Ok(None)
}
