//! Every accepted turn ends, wherever its process was killed, and repeats no effect.
#![cfg(unix)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_agent::store::{Detail, PendingQuery, Scope, SessionStore};
use everturn_agent::{Agent, Interrupt, Snapshot, SnapshotId};
use everturn_core::Status;
use everturn_testkit::eventually;
use jiff::Timestamp;
use testbed::worker::{APPROVED, Effects, Orders, approve, approving};

use crate::processes::{End, Process, Site, Trace};

/// How often a worker is killed during a turn.
const KILLS: usize = 200;

/// The number of concurrent workers, except the one that takes over.
const LANES: usize = 4;

/// Long enough for a busy machine, which must stay below the bound of two leases.
const LEASE: Duration = Duration::from_secs(30);

/// The latest kill after a worker accepted a run: a little longer than a turn.
const LATEST: Duration = Duration::from_millis(120);

/// A run and when its worker was killed.
struct Killed {
    id: SnapshotId,
    at: Timestamp,
}

/// Kills workers until enough of them were killed during a turn.
async fn kill(orders: Orders, store: Arc<dyn SessionStore>) -> Vec<Killed> {
    let (in_a_turn, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let killed = Arc::<Mutex<Vec<Killed>>>::default();
    let lanes = (0..LANES).map(|lane| {
        let (orders, store, killed) = (orders.clone(), Arc::clone(&store), Arc::clone(&killed));
        let (in_a_turn, begun) = (Arc::clone(&in_a_turn), Arc::clone(&begun));
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(lane as u64);
            while in_a_turn.load(Ordering::SeqCst) < KILLS {
                let number = begun.fetch_add(1, Ordering::SeqCst);
                assert!(
                    number < KILLS * 4,
                    "workers are hardly ever in a turn when they are killed"
                );
                let mut orders = orders.clone();
                orders.tasks = (0..3)
                    .map(|task| (format!("s{number}-{task}"), "go".to_owned()))
                    .collect();
                let delay = Duration::from_micros(random.u64(0..u64::try_from(LATEST.as_micros()).unwrap()));
                let (ids, at) = tokio::task::spawn_blocking(move || {
                    let process = Process::start(&orders);
                    let first = process.accepted();
                    let (mut ids, at) = process.kill_after(delay);
                    ids.push(first);
                    (ids, at)
                })
                .await
                .unwrap();
                let mut pending = 0;
                for id in &ids {
                    pending += usize::from(!read(&*store, id).await.status.is_final());
                }
                in_a_turn.fetch_add(usize::from(pending > 0), Ordering::SeqCst);
                killed
                    .lock()
                    .unwrap()
                    .extend(ids.into_iter().map(|id| Killed { id, at }));
            }
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.unwrap();
    }
    Arc::into_inner(killed).unwrap().into_inner().unwrap()
}

async fn read(store: &dyn SessionStore, id: &SnapshotId) -> Snapshot {
    let row = store.get(&Scope::default(), id, Detail::Whole).await.unwrap();
    row.expect("an accepted run has a row")
}

/// Waits until no run is pending, at most two leases after the last kill.
async fn all_over(store: &dyn SessionStore) {
    eventually("every run is over", async || {
        let page = store.pending(&PendingQuery::default()).await;
        page.unwrap().unwrap().items.is_empty()
    })
    .await;
}

async fn every_run_survives(site: Site) {
    let orders = site.orders(LEASE);
    let store = site.store.open().await.unwrap();
    let mut rescue = orders.clone();
    rescue.recover_every = Some(LEASE / 60);
    let rescuer = Process::start(&rescue);
    rescuer.expect_line("ready");

    let killed = kill(orders.clone(), Arc::clone(&store)).await;
    all_over(&*store).await;

    let traces = traces(&orders);
    for trace in traces.values() {
        trace.assert_nothing_is_repeated();
    }
    let (mut longest, mut unknown) = (Duration::ZERO, 0);
    for run in &killed {
        let row = read(&*store, &run.id).await;
        let end = End::of(&row);
        traces[row.session_id.as_ref().unwrap().as_str()].assert_leads_to(end);
        unknown += usize::from(end != End::Done);
        let ended = row.updated_at.unwrap().duration_since(run.at);
        longest = longest.max(Duration::try_from(ended).unwrap_or_default());
    }
    let runs = killed.len();
    println!(
        "{KILLS} kills in the middle of a turn, {runs} runs, {unknown} of which ask what came of a step; the last ended \
         {longest:?} after its worker"
    );
    assert!(
        unknown > 0 && unknown < runs,
        "kills met steps under way, and other moments too"
    );
    assert!(
        longest <= LEASE * 2,
        "a run ended {longest:?} after its worker was killed, with a lease of {LEASE:?}"
    );
}

/// The effects of every session.
fn traces(orders: &Orders) -> HashMap<String, Trace> {
    let mut traces = HashMap::<String, Trace>::new();
    for effect in Effects::at(&orders.effects).all().unwrap() {
        traces.entry(effect.session).or_default().add(effect.what);
    }
    traces
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_accepted_turn_survives_two_hundred_kills_and_repeats_nothing_on_sqlite() {
    every_run_survives(Site::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_accepted_turn_survives_two_hundred_kills_and_repeats_nothing_on_postgres() {
    if let Some(site) = Site::postgres() {
        every_run_survives(site).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_accepted_turn_survives_two_hundred_kills_and_repeats_nothing_on_files() {
    every_run_survives(Site::files()).await;
}

/// A session in which tools asked, and its two branches.
async fn on_two_branches(agent: &Agent, asked: &Snapshot, at_once: bool) -> bool {
    let outputs = if at_once {
        let (one, other) = tokio::join!(approve(agent, asked), approve(agent, asked));
        [one, other]
    } else {
        [approve(agent, asked).await, approve(agent, asked).await]
    };
    let mut is_known = true;
    for output in outputs {
        let output = output.unwrap();
        if let Some(error) = &output.error {
            // The other branch was making the call.
            assert!(at_once && error.status == Some(Status::Aborted), "{error:?}");
            continue;
        }
        let open: Vec<Interrupt> = output
            .message
            .iter()
            .flat_map(|message| message.interrupts().filter_map(Interrupt::of))
            .collect();
        assert!(open.iter().all(Interrupt::is_outcome_unknown), "{open:?}");
        is_known &= open.is_empty();
    }
    is_known
}

/// Kills workers while approved calls run in them, then resumes every session on two branches.
async fn approved_calls_are_made_at_most_once(site: Site) {
    let mut orders = site.orders(LEASE);
    orders.approves = true;
    let begun = Arc::new(AtomicUsize::new(0));
    let lanes = (0..LANES).map(|lane| {
        let (orders, begun) = (orders.clone(), Arc::clone(&begun));
        tokio::task::spawn_blocking(move || {
            let mut random = fastrand::Rng::with_seed(lane as u64);
            let mut asked = Vec::new();
            loop {
                let number = begun.fetch_add(1, Ordering::SeqCst);
                if number >= KILLS {
                    return asked;
                }
                let mut orders = orders.clone();
                orders.tasks = (0..2)
                    .map(|task| (format!("a{number}-{task}"), String::new()))
                    .collect();
                let delay = Duration::from_micros(random.u64(0..u64::try_from(LATEST.as_micros()).unwrap()));
                let process = Process::start(&orders);
                asked.push(process.accepted());
                asked.extend(process.kill_after(delay).0);
            }
        })
    });
    let mut asked = Vec::new();
    for lane in lanes.collect::<Vec<_>>() {
        asked.extend(lane.await.unwrap());
    }
    let effects = Effects::at(&orders.effects);
    let before = effects.all().unwrap().len();

    let store = site.store.open().await.unwrap();
    let agent = approving(Arc::clone(&store), &effects, Duration::ZERO).unwrap();
    let mut unknown = 0;
    for (number, id) in asked.iter().enumerate() {
        let known = on_two_branches(&agent, &read(&*store, id).await, number % 2 == 1).await;
        unknown += usize::from(!known);
    }

    let mut made = HashMap::<(String, String), usize>::new();
    for effect in effects.all().unwrap() {
        *made.entry((effect.session, effect.what)).or_default() += 1;
    }
    let all = made.len();
    made.retain(|_, times| *times > 1);
    assert!(made.is_empty(), "made more than once: {made:?}");
    let calls = asked.len() * APPROVED.len();
    println!(
        "{KILLS} kills, {calls} approved calls: {before} were made before the kill, {} by a branch; in {unknown} of {} sessions \
         an outcome is unknown",
        all - before,
        asked.len()
    );
    assert!(before > 0 && all > before && unknown > 0 && unknown < asked.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn approved_calls_are_made_at_most_once_through_two_hundred_kills_and_two_branches_on_sqlite() {
    approved_calls_are_made_at_most_once(Site::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn approved_calls_are_made_at_most_once_through_two_hundred_kills_and_two_branches_on_postgres() {
    if let Some(site) = Site::postgres() {
        approved_calls_are_made_at_most_once(site).await;
    }
}
