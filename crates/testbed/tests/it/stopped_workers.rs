//! A worker that was suspended while another took over its run does no harm when it continues.
#![cfg(unix)]

use std::time::Duration;

use everturn_agent::store::{Detail, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{Snapshot, SnapshotId};
use everturn_testkit::eventually;
use testbed::worker::Effects;

use crate::processes::{End, Process, Site, Trace};

const LEASE: Duration = Duration::from_millis(500);

/// Long enough to be stopped during a call, even on a busy machine.
const PACE: Duration = Duration::from_millis(1500);

/// The duration of the calls of the worker that takes over.
const PACE_OF_THE_HEIR: Duration = Duration::from_millis(200);

/// Waits until an effect happened.
async fn seen(effects: &Effects, what: &str) {
    eventually(what, async || {
        Trace::of(&effects.all().unwrap(), "s").count(what) > 0
    })
    .await;
}

async fn read(store: &dyn SessionStore, id: &SnapshotId) -> Snapshot {
    let row = store.get(&Scope::default(), id, Detail::Whole).await;
    row.unwrap().expect("an accepted run has a row")
}

/// Returns the run's row once the run has ended.
async fn ended(store: &dyn SessionStore, id: &SnapshotId) -> Snapshot {
    eventually("the run is over", async || {
        read(store, id).await.status.is_final()
    })
    .await;
    read(store, id).await
}

/// Stops a worker while it does not hold the store's lock, which would block all others.
async fn stop(worker: &Process, store: &dyn SessionStore) {
    loop {
        worker.signal("STOP");
        let (scope, nobody) = (Scope::default(), SnapshotId::from("nobody"));
        let knock = store.save(
            &scope,
            Some(&nobody),
            Precondition::None,
            Mutation::new(|_| Ok(None)),
        );
        if let Ok(answered) = tokio::time::timeout(PACE / 4, knock).await {
            answered.unwrap();
            return;
        }
        worker.signal("CONT");
    }
}

/// A worker that was stopped during a call, and another that takes over.
struct Asleep {
    zombie: Process,
    run: SnapshotId,
    effects: Effects,
    _rescuer: Process,
}

impl Asleep {
    async fn during(what: &str, site: &Site, store: &dyn SessionStore) -> Self {
        let mut orders = site.orders(LEASE);
        orders.tasks = vec![("s".to_owned(), "go".to_owned())];
        orders.pace = PACE;
        let effects = Effects::at(&orders.effects);
        let zombie = Process::start(&orders);
        let run = zombie.accepted();
        seen(&effects, what).await;
        stop(&zombie, store).await;
        orders.tasks.clear();
        orders.pace = PACE_OF_THE_HEIR;
        orders.recover_every = Some(LEASE / 6);
        let rescuer = Process::start(&orders);
        Self {
            zombie,
            run,
            effects,
            _rescuer: rescuer,
        }
    }

    /// Continues the worker until it ends.
    fn wake(&self) {
        self.zombie.signal("CONT");
        self.zombie.expect_line("idle");
    }

    fn trace(&self) -> Trace {
        Trace::of(&self.effects.all().unwrap(), "s")
    }
}

async fn the_zombie_is_refused(site: Site) {
    let store = site.store.open().await.unwrap();
    let asleep = Asleep::during("tool 1", &site, &*store).await;
    let over = ended(&*store, &asleep.run).await;

    asleep.wake();

    let left = read(&*store, &asleep.run).await;
    assert_eq!(left, over, "what the zombie wrote was refused");
    assert_eq!(
        End::of(&over),
        End::Unknown(1),
        "nobody else knows what came of it"
    );
    asleep.trace().assert_nothing_is_repeated();
    asleep.trace().assert_leads_to(End::Unknown(1));
}

async fn the_zombie_does_nothing_more(site: Site) {
    let store = site.store.open().await.unwrap();
    let asleep = Asleep::during("model 1", &site, &*store).await;
    seen(&asleep.effects, "tool 1").await;

    asleep.wake();

    let over = ended(&*store, &asleep.run).await;
    let trace = asleep.trace();
    assert_eq!(End::of(&over), End::Done, "its heir was not disturbed");
    trace.assert_nothing_is_repeated();
    trace.assert_leads_to(End::Done);
    assert_eq!(
        trace.count("model 1"),
        2,
        "its reply was not there yet: {trace:?}"
    );
    assert_eq!(trace.count("model 2"), 1, "{trace:?}");
}

#[tokio::test]
async fn the_writes_of_a_stopped_worker_are_refused_on_sqlite() {
    the_zombie_is_refused(Site::sqlite()).await;
}

#[tokio::test]
async fn the_writes_of_a_stopped_worker_are_refused_on_postgres() {
    if let Some(site) = Site::postgres() {
        the_zombie_is_refused(site).await;
    }
}

#[tokio::test]
async fn the_writes_of_a_stopped_worker_are_refused_on_files() {
    the_zombie_is_refused(Site::files()).await;
}

#[tokio::test]
async fn a_stopped_worker_that_wakes_in_the_middle_of_its_turn_does_nothing_more_on_sqlite() {
    the_zombie_does_nothing_more(Site::sqlite()).await;
}

#[tokio::test]
async fn a_stopped_worker_that_wakes_in_the_middle_of_its_turn_does_nothing_more_on_postgres() {
    if let Some(site) = Site::postgres() {
        the_zombie_does_nothing_more(site).await;
    }
}

#[tokio::test]
async fn a_stopped_worker_that_wakes_in_the_middle_of_its_turn_does_nothing_more_on_files() {
    the_zombie_does_nothing_more(Site::files()).await;
}
