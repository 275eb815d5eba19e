//! A worker that was asleep while another took its run over can do no harm when it wakes up.
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]
#![cfg(unix)]

mod processes;

use std::time::Duration;

use everturn_agent::SnapshotStatus;
use everturn_agent::store::{Detail, Scope};
use processes::{Process, Site};
use testbed::worker::Effects;

const LEASE: Duration = Duration::from_millis(300);

async fn the_zombie_is_refused(site: Site) {
    let mut orders = site.orders(LEASE);
    orders.errands = vec![("s".to_owned(), "go".to_owned())];
    orders.pace = Duration::from_millis(100);
    let store = site.store.open().await.unwrap();
    let effects = Effects::at(&orders.effects);
    let zombie = Process::start(&orders);
    let id = zombie.accepted();
    while !effects
        .all()
        .unwrap()
        .iter()
        .any(|effect| effect.what == "tool 1")
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    zombie.signal("STOP");
    let mut rescue = orders.clone();
    rescue.errands.clear();
    rescue.recover_every = Some(LEASE / 6);
    let rescuer = Process::start(&rescue);
    tokio::time::sleep(LEASE * 3).await;
    let ended = loop {
        let row = store
            .get(&Scope::default(), &id, Detail::Whole)
            .await
            .unwrap()
            .unwrap();
        if row.status.is_final() {
            break row;
        }
        tokio::time::sleep(LEASE / 10).await;
    };
    zombie.signal("CONT");
    zombie.hear("idle");

    let left = store
        .get(&Scope::default(), &id, Detail::Whole)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(left, ended, "what the zombie wrote was refused");
    assert_eq!(ended.status, SnapshotStatus::Completed);
    drop(rescuer);
}

#[tokio::test]
async fn the_writes_of_a_stopped_worker_are_refused_on_sqlite() {
    the_zombie_is_refused(Site::sqlite()).await;
}

#[tokio::test]
async fn the_writes_of_a_stopped_worker_are_refused_on_files() {
    the_zombie_is_refused(Site::files()).await;
}
