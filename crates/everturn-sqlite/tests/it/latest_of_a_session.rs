//! The latest row has the greatest creation time, and the greatest id where two are equal.

use everturn_agent::SnapshotStatus::{Completed, Failed, Pending};
use everturn_agent::store::{Deletion, Detail, SessionStore};
use everturn_core::Status;

use crate::support::{Fixture, at, latest, put, row, said, scope, session_ids, with_status};

#[tokio::test]
async fn creation_decides_and_not_the_order_of_writing() {
    let fixture = Fixture::new().await;
    put(&fixture.store, row("new", "s", 20)).await.unwrap();
    put(&fixture.store, row("old", "s", 10)).await.unwrap();

    assert_eq!(latest(&fixture.store, "s").await.unwrap().as_str(), "new");
}

#[tokio::test]
async fn a_tie_goes_to_the_greatest_id_by_bytes() {
    let fixture = Fixture::new().await;
    for id in ["b", "a", "Z", "ä", "é"] {
        put(&fixture.store, row(id, "s", 10)).await.unwrap();
    }

    assert_eq!(latest(&fixture.store, "s").await.unwrap().as_str(), "é");
}

#[tokio::test]
async fn any_status_counts_and_a_late_rewrite_does_not_jump_ahead() {
    let fixture = Fixture::new().await;
    put(&fixture.store, with_status(row("background", "s", 1), Pending))
        .await
        .unwrap();
    put(&fixture.store, with_status(row("failed", "s", 2), Failed))
        .await
        .unwrap();

    put(&fixture.store, with_status(row("background", "s", 1), Completed))
        .await
        .unwrap();

    assert_eq!(latest(&fixture.store, "s").await.unwrap().as_str(), "failed");
}

#[tokio::test]
async fn a_row_that_moves_in_time_takes_its_session_along() {
    let fixture = Fixture::new().await;
    put(&fixture.store, row("a", "s", 1)).await.unwrap();
    put(&fixture.store, row("b", "s", 2)).await.unwrap();
    put(&fixture.store, row("c", "t", 3)).await.unwrap();

    put(&fixture.store, row("a", "s", 9)).await.unwrap();

    assert_eq!(latest(&fixture.store, "s").await.unwrap().as_str(), "a");
    assert_eq!(session_ids(&fixture.store).await, ["s".into(), "t".into()]);
    assert!(fixture.store.verify().await.unwrap().is_clean());
}

#[tokio::test]
async fn deleting_the_latest_makes_the_one_before_it_the_latest() {
    let fixture = Fixture::new().await;
    put(&fixture.store, row("a", "s", 1)).await.unwrap();
    put(&fixture.store, row("b", "s", 2)).await.unwrap();

    fixture
        .store
        .delete(&scope(), &Deletion::Snapshots(vec!["b".into()]))
        .await
        .unwrap();

    assert_eq!(latest(&fixture.store, "s").await.unwrap().as_str(), "a");
}

#[tokio::test]
async fn metadata_comes_without_the_state_and_no_session_without_a_row() {
    let fixture = Fixture::new().await;
    let mut whole = row("a", "s", 1);
    whole.state = Some(said(&["hello"]));
    put(&fixture.store, whole.clone()).await.unwrap();

    let metadata = fixture
        .store
        .latest(&scope(), &"s".into(), Detail::Metadata)
        .await
        .unwrap()
        .unwrap();
    let all = fixture
        .store
        .latest(&scope(), &"s".into(), Detail::Whole)
        .await
        .unwrap()
        .unwrap();

    assert_eq!(metadata.state, None);
    assert_eq!(metadata.created_at, at(1));
    assert_eq!(all, whole);
    assert_eq!(latest(&fixture.store, "nobody").await, None);
}

#[tokio::test]
async fn a_session_needs_a_name() {
    let fixture = Fixture::new().await;

    let error = fixture
        .store
        .latest(&scope(), &"".into(), Detail::Whole)
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}
