//! The changes of a row that are refused.

use std::sync::Arc;

use everturn_agent::SnapshotStatus::{Aborted, Completed, Expired, Failed, Pending};
use everturn_agent::store::{Precondition, SessionStore, TIP_MOVED};
use everturn_core::Status;
use serde_json::Value;

use crate::support::{Fixture, get, put, row, scope, set, state_of, with_status};

#[tokio::test]
async fn a_final_row_keeps_its_status_and_may_change_otherwise() {
    let fixture = Fixture::new().await;

    for last in [Completed, Aborted, Failed] {
        let id = format!("{last:?}");
        put(&fixture.store, with_status(row(&id, "s", 1), Pending))
            .await
            .unwrap();
        put(&fixture.store, with_status(row(&id, "s", 1), last))
            .await
            .unwrap();

        let refused = put(&fixture.store, with_status(row(&id, "s", 1), Pending))
            .await
            .unwrap_err();
        assert_eq!(refused.status(), Status::FailedPrecondition);
        let mut noted = with_status(row(&id, "s", 1), last);
        noted.note = Some("kept".to_owned());
        put(&fixture.store, noted.clone()).await.unwrap();
        assert_eq!(get(&fixture.store, &id).await, Some(noted));
    }
}

#[tokio::test]
async fn a_row_stays_in_its_session_and_needs_one() {
    let fixture = Fixture::new().await;
    put(&fixture.store, row("a", "s", 1)).await.unwrap();

    let moved = put(&fixture.store, row("a", "t", 1)).await.unwrap_err();
    let mut homeless = row("b", "", 1);
    homeless.session_id = None;
    let homeless = put(&fixture.store, homeless).await.unwrap_err();
    let mut silent = row("a", "s", 1);
    silent.session_id = None;
    let kept = put(&fixture.store, silent).await.unwrap();

    assert_eq!(moved.status(), Status::FailedPrecondition);
    assert_eq!(homeless.status(), Status::InvalidArgument);
    assert_eq!(kept.session_id.unwrap().as_str(), "s");
}

#[tokio::test]
async fn expired_is_never_stored() {
    let fixture = Fixture::new().await;

    let error = put(&fixture.store, with_status(row("a", "s", 1), Expired))
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn a_turn_commits_at_the_tip_it_started_from_or_not_at_all() {
    let fixture = Fixture::new().await;
    let save = |tip: Option<&str>, id: &'static str, second| {
        let precondition = Precondition::Tip(tip.map(Into::into));
        let mutation = set(row(id, "s", second));
        let store = fixture.store.clone();
        async move {
            store
                .save(&scope(), Some(&id.into()), precondition, mutation)
                .await
        }
    };

    save(None, "a", 1).await.unwrap();
    save(Some("a"), "b", 2).await.unwrap();
    let late = save(Some("a"), "c", 3).await.unwrap_err();
    let fresh = save(None, "d", 4).await.unwrap_err();

    for error in [late, fresh] {
        assert_eq!(error.status(), Status::Aborted);
        assert!(error.is(TIP_MOVED));
    }
    assert_eq!(get(&fixture.store, "c").await, None);
}

#[tokio::test]
async fn a_precondition_concerns_rewrites_as_well() {
    let fixture = Fixture::new().await;
    put(&fixture.store, with_status(row("a", "s", 1), Pending))
        .await
        .unwrap();
    put(&fixture.store, row("b", "s", 2)).await.unwrap();
    let rewrite = async |tip: &str| {
        let precondition = Precondition::Tip(Some(tip.into()));
        let mutation = set(row("a", "s", 1));
        fixture
            .store
            .save(&scope(), Some(&"a".into()), precondition, mutation)
            .await
    };

    let late = rewrite("a").await.unwrap_err();
    let untouched = get(&fixture.store, "a").await.unwrap();
    let in_time = rewrite("b").await;

    assert!(late.is(TIP_MOVED));
    assert_eq!(untouched.status, Pending);
    assert!(in_time.is_ok());
}

#[tokio::test]
async fn a_time_that_cannot_be_kept_is_refused() {
    let fixture = Fixture::new().await;
    let mut ancient = row("a", "s", 1);
    ancient.created_at = "0044-03-15T12:00:00Z".parse().unwrap();

    let error = put(&fixture.store, ancient).await.unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn a_document_too_deep_to_be_read_back_is_refused() {
    let fixture = Fixture::new().await;
    let deep = |levels: usize| (0..levels).fold(Value::from(1), |inner, _| Value::Array(vec![inner]));
    let with = |id: &str, custom| {
        let mut row = row(id, "s", 1);
        let mut state = state_of(&["hello"]);
        state.custom = Some(Arc::new(custom));
        row.state = Some(state);
        row
    };

    put(&fixture.store, with("deep", deep(100))).await.unwrap();
    let error = put(&fixture.store, with("deeper", deep(1_000)))
        .await
        .unwrap_err();

    let fixture = fixture.reopened().await;
    assert_eq!(
        get(&fixture.store, "deep")
            .await
            .unwrap()
            .state
            .unwrap()
            .custom
            .unwrap()
            .as_ref(),
        &deep(100)
    );
    assert_eq!(error.status(), Status::InvalidArgument);
}
