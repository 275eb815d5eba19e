//! Watching a status across processes: prompt where notifications arrive, and by polling where they do not.

use std::time::{Duration, Instant};

use everturn_agent::SnapshotStatus;
use everturn_agent::store::SessionStore;
use everturn_postgres::PostgresStore;
use futures::StreamExt;

use crate::support::{Fixture, Way, options, put, row, scope};

async fn abort_is_heard(here: &PostgresStore, there: &PostgresStore, id: &str) -> Duration {
    let mut run = row(id, "s", 1);
    run.status = SnapshotStatus::Pending;
    put(there, run.clone()).await.unwrap();
    let mut statuses = here.watch(&scope(), &id.into()).unwrap();
    assert_eq!(statuses.next().await, Some(SnapshotStatus::Pending));

    run.status = SnapshotStatus::Aborted;
    put(there, run).await.unwrap();
    let aborted = Instant::now();
    assert_eq!(statuses.next().await, Some(SnapshotStatus::Aborted));
    aborted.elapsed()
}

async fn until_listening(store: &PostgresStore) {
    let begun = Instant::now();
    while !store.metrics().is_listening {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never listens");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_notification_makes_a_change_known_long_before_it_is_polled() {
    let slow = Duration::from_hours(1);
    let Some(fixture) = Fixture::by(Way::Direct, |options| options.poll_every(slow)).await else {
        return;
    };
    until_listening(&fixture.store).await;

    let heard = abort_is_heard(&fixture.store, &fixture.reopened().await, "run").await;

    assert!(
        heard < Duration::from_secs(10),
        "polling would take an hour, this took {heard:?}"
    );
}

#[tokio::test]
async fn an_abort_reaches_another_host_within_a_tenth_of_a_second() {
    let slow = Duration::from_hours(1);
    let Some(fixture) = Fixture::by(Way::Direct, |options| options.poll_every(slow)).await else {
        return;
    };
    until_listening(&fixture.store).await;
    let there = fixture.reopened().await;

    let mut quickest = Duration::MAX;
    for number in 0..20 {
        let heard = abort_is_heard(&fixture.store, &there, &format!("run-{number}")).await;
        quickest = quickest.min(heard);
    }

    // The quickest of many, because a machine that has other things to do is slow now and then.
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
}

#[tokio::test]
async fn a_pooler_is_found_deaf_and_polling_makes_up_for_it() {
    let Some(fixture) = Fixture::by(Way::Pooled, |options| options).await else {
        return;
    };

    abort_is_heard(&fixture.store, &fixture.reopened().await, "run").await;

    assert!(!fixture.store.metrics().is_listening);
}

#[tokio::test]
async fn a_connection_past_the_pooler_listens() {
    let (Some(direct), Some(pooled)) = (Way::Direct.url(), Way::Pooled.url()) else {
        return;
    };
    let schema = crate::support::fresh_schema();
    let open = || {
        let options = options(&pooled, &schema).poll_every(Duration::from_hours(1));
        options.listen_on(&direct).open()
    };
    let (here, there) = (open().await.unwrap(), open().await.unwrap());
    until_listening(&here).await;

    abort_is_heard(&here, &there, "run").await;
}
