//! Checks that acknowledged saves survive the death of the process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{Detail, Precondition, SessionStore};
use everturn_agent::{SessionState, Snapshot};
use everturn_ai::{Message, Part};
use futures::future::join_all;
use serde_json::json;

use super::row::{at, put, scope};
use super::worker::{Role, Worker, report};
use super::{Certificate, Verdict, ensure, examine};

/// The number of concurrent processes.
const AT_ONCE: usize = 10;

/// The number of batches of processes on one store.
const BATCHES: usize = 5;

/// Kills processes that save turns, at random points, and examines the store afterwards.
///
/// Each process saves the turns of one session and reports every save that has returned. After the kill,
/// every reported turn must be stored completely, the session's latest snapshot must not be older, and the
/// session must accept further turns. Ten processes at a time share a store. The store is reopened after they
/// are dead, and used for fifty kills.
///
/// The arguments are those of [`certify_processes`](super::certify_processes).
pub async fn certify_crashes<F>(test: &str, folder: &Path, kills: usize, open: F) -> Certificate
where
    F: AsyncFn(PathBuf) -> Arc<dyn SessionStore>,
{
    match Role::own() {
        Some(Role::Talk { folder, session }) => {
            talk(&*open(folder).await, &session).await;
            return Certificate::default();
        }
        Some(_) => return Certificate::default(),
        None => {}
    }
    let mut certificate = Certificate::default();
    let mut random = fastrand::Rng::with_seed(11);
    let mut acknowledged = 0;
    let mut survived = Ok(());
    for batch in 0..kills.div_ceil(AT_ONCE) {
        let killed = async {
            let folder = folder.join(format!("store-{}", batch / BATCHES));
            std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            let victims = (0..AT_ONCE.min(kills - batch * AT_ONCE)).map(|number| {
                let session = format!("session-{batch}-{number}");
                kill_one(test, &folder, session, random.fork())
            });
            let left = join_all(victims)
                .await
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?;
            acknowledged += left.iter().map(|(_, turns)| turns).sum::<usize>();
            let store = open(folder.clone()).await;
            for (session, turns) in left {
                check(&*store, &session, turns).await?;
            }
            Ok(())
        };
        survived = examine(killed).await;
        if survived.is_err() {
            break;
        }
    }
    certificate.note(
        "what was acknowledged survives the death of its process",
        survived,
    );
    let enough = if acknowledged > kills / 3 {
        Ok(())
    } else {
        Err(format!(
            "only {acknowledged} turns were acknowledged before {kills} kills"
        ))
    };
    certificate.note("processes get as far as saving before they are killed", enough);
    certificate
}

/// Saves turns until the process is killed.
async fn talk(store: &dyn SessionStore, session: &str) {
    let mut state = SessionState::default();
    for number in 0.. {
        let turn = turn(session, &mut state, number);
        save_turn(store, turn).await.expect("a turn is saved");
        report(&number);
    }
}

/// Starts a process and kills it at a random point. Returns its session and the number of turns it reported.
async fn kill_one(
    test: &str,
    folder: &Path,
    session: String,
    mut random: fastrand::Rng,
) -> Result<(String, usize), String> {
    let role = Role::Talk {
        folder: folder.to_owned(),
        session: session.clone(),
    };
    let mut worker = Worker::start(test, &role)?;
    let (mut turns, wanted) = (0, random.usize(0..4));
    while turns < wanted {
        let report = worker.next_report::<usize>().await?;
        ensure!(
            report == Some(turns),
            "'{session}' reports {report:?} after {turns} turns"
        );
        turns += 1;
    }
    // The kill happens at any time: while the store is opened, or before, during or after a save.
    let span = if wanted == 0 { 40_000 } else { 5_000 };
    let delay = Duration::from_micros(random.u64(0..span));
    let slept = tokio::task::spawn_blocking(move || std::thread::sleep(delay)).await;
    slept.map_err(|error| error.to_string())?;
    worker.kill().await?;
    while worker.next_report::<usize>().await? == Some(turns) {
        turns += 1;
    }
    Ok((session, turns))
}

/// Checks the store after a killed process that had reported so many turns.
async fn check(store: &dyn SessionStore, session: &str, turns: usize) -> Verdict {
    let mut state = SessionState::default();
    for number in 0..turns {
        let expected = turn(session, &mut state, number);
        let id = &expected.snapshot_id;
        let found = store.get(&scope(), id, Detail::Whole).await;
        let found = found.map_err(|error| format!("reading '{id}': {error}"))?;
        ensure!(found.is_some(), "'{id}' was acknowledged and is not there");
        ensure!(
            found.as_ref() == Some(&expected),
            "'{id}' is not what was acknowledged"
        );
    }
    let latest = store.latest(&scope(), &session.into(), Detail::Whole).await;
    let latest = latest.map_err(|error| format!("the latest of '{session}': {error}"))?;
    // A save in progress may have succeeded, completely.
    let saved = match &latest {
        Some(found) if *found == turn(session, &mut state.clone(), turns) => {
            turn(session, &mut state, turns);
            turns + 1
        }
        Some(found) => {
            let last = turns.checked_sub(1).map(|last| turn_id(session, last));
            ensure!(
                Some(found.snapshot_id.as_str()) == last.as_deref(),
                "'{}' is the latest after {turns} acknowledged turns",
                found.snapshot_id
            );
            turns
        }
        None => {
            ensure!(
                turns == 0,
                "session '{session}' lost its {turns} acknowledged turns"
            );
            0
        }
    };
    let next = save_turn(store, turn(session, &mut state, saved)).await;
    ensure!(next.is_ok(), "'{session}' cannot be continued: {next:?}");
    Ok(())
}

async fn save_turn(store: &dyn SessionStore, row: Snapshot) -> everturn_core::Result<Option<Snapshot>> {
    let (id, tip) = (row.snapshot_id.clone(), Precondition::Tip(row.parent_id.clone()));
    store.save(&scope(), Some(&id), tip, put(row)).await
}

fn turn_id(session: &str, number: usize) -> String {
    format!("{session}-{number:05}")
}

/// Returns the snapshot of a session's next turn, which depends only on its number.
fn turn(session: &str, state: &mut SessionState, number: usize) -> Snapshot {
    state.session_id = Some(session.into());
    state
        .messages
        .push(Message::user(format!("{session} asks {number}")));
    let answer = if number % 4 == 3 {
        Part::media(format!("data:,{}", format!("{session}/{number}/").repeat(2_000)))
    } else {
        Part::text("soup ".repeat(number * 10))
    };
    state.messages.push(Message::model(answer));
    state.custom = Some(Arc::new(json!({"turn": number, "padding": "salt ".repeat(400)})));
    let second = i64::try_from(number).expect("it is killed long before");
    let mut row = Snapshot::new(turn_id(session, number).into(), session.into(), at(second));
    row.parent_id = number
        .checked_sub(1)
        .map(|before| turn_id(session, before).into());
    row.state = Some(state.clone());
    row
}
