//! The latest row has the greatest creation time, and the greatest id where two are equal.

use everturn_agent::SnapshotStatus::{Completed, Failed, Pending};
use everturn_agent::store::{Deletion, Detail, Precondition, SessionStore};
use everturn_core::Status;

use crate::support::{Fixture, at, latest, open, put, row, scope, session_ids, set, state_of, with_status};

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
    whole.state = Some(state_of(&["hello"]));
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

#[tokio::test]
async fn a_remembered_row_gives_way_to_what_another_process_writes() {
    let here = Fixture::new().await;
    // Another connection to the file is to this store what another process is.
    let elsewhere = open(here.folder.path()).await;

    for second in (1..40).step_by(2) {
        let (own, others) = (format!("own-{second}"), format!("others-{second}"));
        put(&here.store, row(&own, "s", second)).await.unwrap();
        assert_eq!(latest(&here.store, "s").await.unwrap().as_str(), own);
        assert_eq!(latest(&elsewhere, "s").await.unwrap().as_str(), own);

        put(&elsewhere, row(&others, "s", second + 1)).await.unwrap();
        assert_eq!(latest(&here.store, "s").await.unwrap().as_str(), others);
        assert_eq!(latest(&elsewhere, "s").await.unwrap().as_str(), others);
    }
}

#[tokio::test]
async fn a_remembered_row_gives_way_to_its_own_rewrite_and_to_its_deletion_elsewhere() {
    let here = Fixture::new().await;
    let elsewhere = open(here.folder.path()).await;
    put(&here.store, row("a", "s", 1)).await.unwrap();
    put(&here.store, with_status(row("b", "s", 2), Pending))
        .await
        .unwrap();

    put(&here.store, with_status(row("b", "s", 2), Failed))
        .await
        .unwrap();
    let rewritten = here.store.latest(&scope(), &"s".into(), Detail::Whole).await;
    assert_eq!(rewritten.unwrap().unwrap().status, Failed);

    put(&here.store, row("c", "s", 3)).await.unwrap();
    let deletion = Deletion::Snapshots(vec!["c".into()]);
    elsewhere.delete(&scope(), &deletion).await.unwrap();
    assert_eq!(latest(&here.store, "s").await.unwrap().as_str(), "b");
}

#[tokio::test]
async fn a_save_that_fails_leaves_the_remembered_row() {
    let fixture = Fixture::new().await;
    put(&fixture.store, row("a", "s", 1)).await.unwrap();
    put(&fixture.store, row("b", "s", 2)).await.unwrap();

    let late = row("late", "s", 3);
    let after_a = Precondition::Tip(Some("a".into()));
    let refused = fixture
        .store
        .save(&scope(), Some(&"late".into()), after_a, set(late))
        .await;

    assert_eq!(refused.unwrap_err().status(), Status::Aborted);
    assert_eq!(latest(&fixture.store, "s").await.unwrap().as_str(), "b");
}
