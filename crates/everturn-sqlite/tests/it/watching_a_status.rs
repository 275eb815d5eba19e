//! Watchers receive the current status, then every change or at least the last.

use everturn_agent::SnapshotStatus::{self, Aborted, Completed, Pending};
use everturn_agent::store::{Deletion, SessionStore};
use everturn_testkit::in_time;
use futures::StreamExt;

use crate::support;
use crate::support::{Fixture, put, row, scope, with_status};

async fn soon<T>(future: impl Future<Output = T>) -> T {
    in_time("a status is reported", future).await
}

/// Saves row `a` with that status.
async fn set_status(fixture: &Fixture, status: SnapshotStatus) {
    let row = with_status(row("a", "s", 1), status);
    put(&fixture.store, row).await.unwrap();
}

#[tokio::test]
async fn the_current_status_comes_first_and_changes_follow() {
    let fixture = Fixture::new().await;
    set_status(&fixture, Pending).await;

    let mut statuses = fixture.store.watch(&scope(), &"a".into()).unwrap();
    assert_eq!(soon(statuses.next()).await, Some(Pending));
    set_status(&fixture, Aborted).await;

    assert_eq!(soon(statuses.next()).await, Some(Aborted));
}

#[tokio::test]
async fn a_slow_watcher_receives_the_last_status() {
    let fixture = Fixture::new().await;
    set_status(&fixture, Pending).await;
    let mut statuses = fixture.store.watch(&scope(), &"a".into()).unwrap();

    set_status(&fixture, Completed).await;

    let last = soon(async { while statuses.next().await != Some(Completed) {} });
    last.await;
}

#[tokio::test]
async fn a_new_watcher_gets_the_saved_status_first() {
    let fixture = Fixture::new().await;
    set_status(&fixture, Pending).await;
    let mut early = fixture.store.watch(&scope(), &"a".into()).unwrap();
    soon(early.next()).await;

    set_status(&fixture, Completed).await;
    let mut late = fixture.store.watch(&scope(), &"a".into()).unwrap();

    assert_eq!(soon(late.next()).await, Some(Completed));
}

#[tokio::test]
async fn a_change_that_leaves_the_status_is_not_reported() {
    let fixture = Fixture::new().await;
    set_status(&fixture, Pending).await;
    let mut statuses = fixture.store.watch(&scope(), &"a".into()).unwrap();
    assert_eq!(soon(statuses.next()).await, Some(Pending));

    let mut beat = with_status(row("a", "s", 1), Pending);
    beat.heartbeat_at = Some(support::at(5));
    put(&fixture.store, beat).await.unwrap();
    set_status(&fixture, Completed).await;

    assert_eq!(soon(statuses.next()).await, Some(Completed));
}

#[tokio::test]
async fn the_stream_of_a_row_that_does_not_exist_is_over() {
    let fixture = Fixture::new().await;

    let mut statuses = fixture.store.watch(&scope(), &"nothing".into()).unwrap();

    assert_eq!(soon(statuses.next()).await, None);
}

#[tokio::test]
async fn the_stream_ends_with_its_row() {
    let fixture = Fixture::new().await;
    set_status(&fixture, Pending).await;
    let mut statuses = fixture.store.watch(&scope(), &"a".into()).unwrap();
    soon(statuses.next()).await;

    fixture
        .store
        .delete(&scope(), &Deletion::Session("s".into()))
        .await
        .unwrap();

    assert_eq!(soon(statuses.next()).await, None);
}

#[tokio::test]
async fn a_handle_on_the_same_file_receives_the_changes_of_another() {
    let fixture = Fixture::new().await;
    let other = support::open(fixture.folder.path()).await;
    set_status(&fixture, Pending).await;
    let mut statuses = other.watch(&scope(), &"a".into()).unwrap();
    assert_eq!(soon(statuses.next()).await, Some(Pending));

    set_status(&fixture, Completed).await;

    assert_eq!(soon(statuses.next()).await, Some(Completed));
}
