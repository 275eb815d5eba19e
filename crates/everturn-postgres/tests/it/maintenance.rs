//! Verification, tidying, tasks and metrics.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::SnapshotId;
use everturn_agent::archive::Retention;
use everturn_agent::store::{Deletion, Detail, Precondition, SessionStore};
use everturn_core::Status;
use everturn_testkit::eventually;
use futures::future::join_all;
use serde_json::json;

use crate::support::{Fixture, get, put, row, scope, set, sql, state_of};

/// A session of a few snapshots with documents, blobs and a branch.
async fn talk(fixture: &Fixture) {
    let mut state = state_of(&["leeks?"]);
    for number in 0..4 {
        state
            .messages
            .push(everturn_ai::Message::model("soup ".repeat(5_000 + number)));
        state.custom = Some(Arc::new(json!({"number": number, "kept": "salt ".repeat(900)})));
        let mut next = row(&format!("r{number}"), "s", i64::try_from(number).unwrap());
        next.parent_id = number
            .checked_sub(1)
            .map(|before| format!("r{before}").as_str().into());
        next.state = Some(state.clone());
        put(&fixture.store, next).await.unwrap();
    }
    let mut branch = row("branch", "s", 9);
    let mut state = get(&fixture.store, "r1").await.unwrap().state.unwrap();
    state.messages.push(everturn_ai::Message::user("cold, please"));
    branch.parent_id = Some("r1".into());
    branch.state = Some(state);
    put(&fixture.store, branch).await.unwrap();
}

#[tokio::test]
async fn what_is_kept_is_verified_and_deleted_to_the_last_row() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    talk(&fixture).await;

    let found = fixture.store.verify().await.unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!((found.snapshots, found.messages, found.blobs), (5, 6, 4));

    let some = Deletion::Snapshots(vec!["r0".into(), "r3".into()]);
    assert_eq!(fixture.store.delete(&scope(), &some).await.unwrap(), 2);
    let found = fixture.store.verify().await.unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!(found.messages, 5);

    let all = Deletion::Session("s".into());
    assert_eq!(fixture.store.delete(&scope(), &all).await.unwrap(), 3);
    for table in [
        "session",
        "snapshot",
        "lineage",
        "message",
        "document",
        "blob",
        "message_blob",
        "document_blob",
    ] {
        let count = format!("SELECT count(*) FROM \"{}\".{table}", fixture.schema);
        assert_eq!(sql(&fixture.url, &count).await.unwrap(), "0", "{table}");
    }
    fixture.store.vacuum().await.unwrap();
}

#[tokio::test]
async fn a_session_that_others_forked_from_is_deleted_and_they_keep_its_messages() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    talk(&fixture).await;
    let state = get(&fixture.store, "r2").await.unwrap().state.unwrap();
    let mut fork = row("fork", "other", 20);
    fork.state = Some(state.clone());
    put(&fixture.store, fork).await.unwrap();

    fixture
        .store
        .delete(&scope(), &Deletion::Session("s".into()))
        .await
        .unwrap();

    let reopened = fixture.reopened().await;
    assert_eq!(get(&reopened, "fork").await.unwrap().state.unwrap(), state);
    assert_eq!(reopened.verify().await.unwrap().problems, Vec::<String>::new());
    reopened
        .delete(&scope(), &Deletion::Session("other".into()))
        .await
        .unwrap();
    let found = reopened.verify().await.unwrap();
    assert_eq!((found.problems.len(), found.messages, found.blobs), (0, 0, 0));
}

#[tokio::test]
async fn damage_is_named_and_never_handed_out() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    talk(&fixture).await;
    let schema = &fixture.schema;
    let flip = format!(
        "UPDATE \"{schema}\".message SET body = set_byte(body, 9, get_byte(body, 9) # 1) WHERE number = 0"
    );
    sql(&fixture.url, &flip).await;

    let reopened = fixture.reopened().await;
    let refused = reopened
        .get(&scope(), &"r0".into(), Detail::Whole)
        .await
        .unwrap_err();

    assert_eq!(refused.status(), Status::DataLoss);
    assert!(refused.message().contains("checksum"), "{refused}");
    assert!(!reopened.verify().await.unwrap().is_clean());
    let lost = format!("DELETE FROM \"{schema}\".snapshot WHERE id = 'branch'");
    sql(&fixture.url, &lost).await;
    let refused = reopened
        .latest(&scope(), &"s".into(), Detail::Metadata)
        .await
        .unwrap_err();
    assert_eq!(refused.status(), Status::DataLoss);
    assert!(refused.message().contains("'branch'"), "{refused}");
}

#[tokio::test]
async fn what_a_dead_process_left_is_tidied_up() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    talk(&fixture).await;
    let schema = &fixture.schema;
    // As if the process had died between rewriting a snapshot and releasing what it referred to.
    let left = format!(
        "INSERT INTO \"{schema}\".document (tenant, session, number, depth, cuts, body, checksum) \
         SELECT tenant, session, number + 3, depth, cuts, body, checksum FROM \"{schema}\".document WHERE base IS NULL"
    );
    sql(&fixture.url, &left).await;
    let problems = fixture.store.verify().await.unwrap().problems;
    assert!(
        problems[0].contains("nothing refers to a document"),
        "{problems:?}"
    );

    assert_eq!(fixture.store.tidy().await.unwrap(), 1);

    assert_eq!(
        fixture.store.verify().await.unwrap().problems,
        Vec::<String>::new()
    );
    assert_eq!(fixture.store.tidy().await.unwrap(), 0);
}

#[tokio::test]
async fn a_task_is_due_for_one_worker_in_each_interval() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let other = fixture.reopened().await;
    let ask = |task: &'static str, every| {
        let stores = [&fixture.store, &other, &fixture.store, &other];
        async move {
            let due = join_all(stores.map(|store| store.is_due(task, every))).await;
            due.into_iter().filter(|due| *due.as_ref().unwrap()).count()
        }
    };

    assert_eq!(ask("retention", Duration::from_hours(1)).await, 1);
    assert_eq!(ask("retention", Duration::from_hours(1)).await, 0);
    assert_eq!(ask("another", Duration::from_hours(1)).await, 1);
}

#[tokio::test]
async fn metrics_count_commits_and_connections() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    put(&fixture.store, row("a", "s", 1)).await.unwrap();

    let metrics = fixture.store.metrics();

    assert_eq!(metrics.commits, 1);
    assert!(
        metrics.connections >= 1 && metrics.round_trips >= 2,
        "{metrics:?}"
    );
    assert!(metrics.commit_time > Duration::ZERO);
    assert!(
        metrics
            .to_prometheus()
            .contains("everturn_postgres_commits_total 1\n")
    );
}

#[tokio::test]
async fn scheduled_maintenance_carries_out_the_rules_of_retention_in_one_process() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let stores = [fixture.store.clone(), fixture.reopened().await];
    put(&fixture.store, row("old", "old", 1)).await.unwrap();
    let ann = everturn_core::Principal::new("ann").scope();
    let id = SnapshotId::from("old");
    let old_of_ann = set(row("old", "old", 1));
    let saved = fixture
        .store
        .save(&ann, Some(&id), Precondition::None, old_of_ann)
        .await;
    saved.unwrap();
    let mut young = row("young", "young", 1);
    young.created_at = jiff::Timestamp::now();
    put(&fixture.store, young).await.unwrap();
    let rules = Retention::default().no_older_than(Duration::from_hours(24));

    let schedules = stores
        .each_ref()
        .map(|store| store.schedule_maintenance(Duration::from_hours(1), rules.clone()));
    eventually("the old snapshots are deleted", async || {
        let of_ann = fixture.store.get(&ann, &id, Detail::Metadata).await.unwrap();
        of_ann.is_none() && get(&fixture.store, "old").await.is_none()
    })
    .await;
    drop(schedules);

    assert!(get(&fixture.store, "young").await.is_some());
    assert!(
        !stores[1]
            .is_due("maintenance", Duration::from_hours(1))
            .await
            .unwrap(),
        "it was done in this interval"
    );
}
