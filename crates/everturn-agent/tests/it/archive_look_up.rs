//! Finding snapshots and sessions in an archive.

use std::time::Duration;

use everturn_agent::archive::Archive;
use everturn_agent::store::{
    MemoryStore, Mutation, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_agent::{
    Agent, Clock, Heartbeat, SNAPSHOT_NOT_FOUND, STORE_NOT_CONFIGURED, Snapshot, SnapshotId, SnapshotStatus,
};
use everturn_ai::History;
use everturn_core::Status;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::replying;

async fn talk(agent: &Agent, session: &str, texts: &[&str]) -> Vec<SnapshotId> {
    let mut ids = Vec::new();
    for text in texts {
        let reply = agent.chat().resume(session).run(*text).await.unwrap();
        ids.push(reply.snapshot_id().unwrap().clone());
    }
    ids
}

fn ids(snapshots: &[Snapshot]) -> Vec<SnapshotId> {
    snapshots
        .iter()
        .map(|snapshot| snapshot.snapshot_id.clone())
        .collect()
}

/// Writes snapshots as another implementation's store might have them.
async fn plant(store: &MemoryStore, snapshots: impl IntoIterator<Item = Snapshot>) {
    for snapshot in snapshots {
        let id = snapshot.snapshot_id.clone();
        let mutation = Mutation::new(move |_| Ok(Some(snapshot.clone())));
        store
            .save(&Scope::default(), Some(&id), Precondition::None, mutation)
            .await
            .unwrap();
    }
}

fn planted(id: &str, parent: Option<&str>, second: i64) -> Snapshot {
    Snapshot {
        parent_id: parent.map(SnapshotId::from),
        ..Snapshot::new(id.into(), "s".into(), Timestamp::from_second(second).unwrap())
    }
}

#[tokio::test]
async fn runs_that_are_not_over_are_listed_in_pages_also_on_branches_and_of_one_tenant_only() {
    let store = MemoryStore::new();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    let run = |id: &str, second: i64| Snapshot {
        status: SnapshotStatus::Pending,
        ..planted(id, None, second)
    };
    plant(
        &store,
        [
            run("a", 1),
            planted("b", None, 2),
            run("c", 3),
            run("d", 4),
            planted("e", None, 5),
        ],
    )
    .await;
    let elsewhere = Mutation::new(move |_| Ok(Some(run("x", 2))));
    store
        .save(
            &Scope::new("other"),
            Some(&"x".into()),
            Precondition::None,
            elsewhere,
        )
        .await
        .unwrap();
    let archive = agent.archive().unwrap();

    let first = archive.pending_runs(2, None).await.unwrap();
    let second = archive.pending_runs(2, first.next.clone()).await.unwrap();

    assert_eq!(ids(&first.items), ["a".into(), "c".into()]);
    assert_eq!(ids(&second.items), ["d".into()]);
    assert_eq!(second.next, None);
}

#[tokio::test]
async fn snapshots_are_listed_in_pages_in_either_order_with_or_without_their_states() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    let mut made = talk(&agent, "s", &["one", "two", "three", "four", "five"]).await;
    let archive = agent.archive().unwrap();

    let oldest = SnapshotQuery::of("s".into()).oldest_first().whole().limit(3);
    let first = archive.list(&oldest).await.unwrap();
    let second = archive
        .list(&oldest.clone().after(first.next.clone().unwrap()))
        .await
        .unwrap();
    let newest = archive.list(&SnapshotQuery::of("s".into())).await.unwrap();
    let nothing = archive.list(&SnapshotQuery::of("t".into())).await.unwrap();
    let nameless = archive.list(&SnapshotQuery::of("".into())).await.unwrap_err();

    assert_eq!([ids(&first.items), ids(&second.items)].concat(), made);
    assert!(second.next.is_none() && first.items.iter().all(|snapshot| snapshot.state.is_some()));
    made.reverse();
    assert_eq!(ids(&newest.items), made);
    assert!(newest.items.iter().all(|snapshot| snapshot.state.is_none()));
    assert!(nothing.items.is_empty());
    assert_eq!(nameless.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn orphaned_snapshots_are_listed_on_request_only() {
    let store = MemoryStore::new();
    let orphan = Snapshot {
        orphaned: true,
        ..planted("left behind", Some("kept"), 2)
    };
    plant(&store, [planted("kept", None, 1), orphan]).await;
    let archive = Archive::of(store, Scope::default());

    let without = archive.list(&SnapshotQuery::of("s".into())).await.unwrap();
    let with = archive
        .list(&SnapshotQuery::of("s".into()).with_orphaned())
        .await
        .unwrap();
    let printed = archive.tree("s").await.unwrap().to_string();

    assert_eq!(ids(&without.items), ["kept".into()]);
    assert_eq!(with.items.len(), 2);
    assert_eq!(
        printed,
        "s\n● kept completed 1970-01-01T00:00:01Z ← latest\n● left behind completed 1970-01-01T00:00:02Z orphaned\n"
    );
}

#[tokio::test]
async fn sessions_come_with_their_latest_snapshots() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    talk(&agent, "older", &["one"]).await;
    let newer = talk(&agent, "newer", &["one", "two"]).await;
    let archive = agent.archive().unwrap();

    let page = archive.sessions(&SessionQuery::default()).await.unwrap();

    let names: Vec<&str> = page
        .items
        .iter()
        .map(|session| session.session_id.as_str())
        .collect();
    assert_eq!(names, ["newer", "older"]);
    assert_eq!(page.items[0].latest.snapshot_id, newer[1]);
    assert!(page.items[0].latest.state.is_none());
}

#[tokio::test]
async fn a_snapshot_lists_its_ancestors_and_its_children() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    let line = talk(&agent, "s", &["one", "two", "three"]).await;
    let branch = agent.chat().snapshot(line[0].clone()).run("other").await.unwrap();
    let branch = branch.snapshot_id().unwrap().clone();
    let archive = agent.archive().unwrap();

    let ancestors = archive.ancestors(line[2].clone()).await.unwrap();
    let children = archive.children(line[0].clone()).await.unwrap();
    let tree = archive.tree("s").await.unwrap();

    assert_eq!(ids(&ancestors), [line[1].clone(), line[0].clone()]);
    assert_eq!(ids(&children), [line[1].clone(), branch.clone()]);
    let roots: Vec<_> = tree
        .roots()
        .map(|node| node.snapshot().snapshot_id.clone())
        .collect();
    assert_eq!(roots, [line[0].clone()]);
    assert_eq!(tree.latest().unwrap().snapshot().snapshot_id, branch);
    let at = |id: &SnapshotId| format!("{:.0}", tree.find(id).unwrap().snapshot().created_at);
    let expected = format!(
        "s\n● {} completed {} — one\n├─● {branch} completed {} ← latest — other\n● {} completed {} — two\n\
         ● {} completed {} — three\n",
        line[0],
        at(&line[0]),
        at(&branch),
        line[1],
        at(&line[1]),
        line[2],
        at(&line[2])
    );
    assert_eq!(tree.to_string(), expected);
}

#[tokio::test]
async fn cycles_and_missing_parents_end_the_list_of_ancestors() {
    let store = MemoryStore::new();
    let snapshots = [
        planted("a", Some("b"), 1),
        planted("b", Some("a"), 2),
        planted("c", Some("c"), 3),
        planted("d", Some("nowhere"), 4),
    ];
    plant(&store, snapshots).await;
    let archive = Archive::of(store, Scope::default());

    let circle = archive.ancestors("a").await.unwrap();
    let loner = archive.ancestors("c").await.unwrap();
    let dangling = archive.ancestors("d").await.unwrap();
    let tree = archive.tree("s").await.unwrap();

    assert_eq!(ids(&circle), ["b".into()]);
    assert!(loner.is_empty() && dangling.is_empty());
    assert_eq!(tree.roots().count(), 3);
    assert_eq!(tree.to_string().matches("completed").count(), 4);
}

#[tokio::test]
async fn the_list_of_ancestors_stays_in_its_session() {
    let store = MemoryStore::new();
    let stranger = Snapshot {
        session_id: Some("t".into()),
        ..planted("stranger", None, 1)
    };
    plant(&store, [stranger, planted("mine", Some("stranger"), 2)]).await;
    let archive = Archive::of(store, Scope::default());

    assert!(archive.ancestors("mine").await.unwrap().is_empty());
    assert_eq!(archive.delete_branch("stranger").await.unwrap(), 1);
    assert!(archive.get("mine").await.is_ok());
}

#[tokio::test]
async fn missing_sessions_and_snapshots_are_not_found() {
    let archive = Archive::of(MemoryStore::new(), Scope::default());

    let missing = [
        archive.get("x").await.unwrap_err(),
        archive.latest("x").await.unwrap_err(),
        archive.ancestors("x").await.unwrap_err(),
        archive.tree("x").await.unwrap_err(),
        archive.diff("x", "y").await.unwrap_err(),
        archive.fork("x", "new").await.unwrap_err(),
        archive.copy("x", "new").await.unwrap_err(),
        archive.label("x", "label").await.unwrap_err(),
        archive.export("x", Vec::new()).await.unwrap_err(),
    ];
    let nameless = [
        archive.get("").await.unwrap_err(),
        archive.latest("").await.unwrap_err(),
        archive.children("").await.unwrap_err(),
        archive.delete_session("").await.unwrap_err(),
        archive.delete_snapshot("").await.unwrap_err(),
        archive.delete_branch("").await.unwrap_err(),
    ];

    for error in missing {
        assert_eq!(error.status(), Status::NotFound);
        assert!(error.is(SNAPSHOT_NOT_FOUND), "{error}");
    }
    for error in nameless {
        assert_eq!(error.status(), Status::InvalidArgument);
    }
    assert!(!archive.delete_snapshot("x").await.unwrap());
    assert_eq!(archive.delete_branch("x").await.unwrap(), 0);
    assert_eq!(archive.delete_session("x").await.unwrap(), 0);
}

#[tokio::test]
async fn an_agents_archive_shows_what_its_clients_see() {
    let store = MemoryStore::new();
    let beat = Timestamp::from_second(1_000).unwrap();
    let silent = Snapshot {
        status: SnapshotStatus::Pending,
        heartbeat_at: Some(beat),
        bookkeeping: serde_json::from_value(json!({"backgroundRun": {}})).unwrap(),
        ..planted("silent", None, 1_000)
    };
    plant(&store, [silent]).await;
    let agent = replying("chef")
        .store(store.clone())
        .clock(Clock::new(move || beat + SignedDuration::from_mins(5)))
        .heartbeat(Heartbeat {
            interval: Duration::from_secs(1),
            expiry: Duration::from_mins(2),
        })
        .state_transform(|mut state, _| {
            state.messages = History::default();
            Ok(Some(state))
        })
        .define()
        .unwrap();
    let said = talk(&agent, "t", &["secret"]).await;
    let shown = agent.archive().unwrap();
    let stored = Archive::of(store, Scope::default());

    let runs = [
        shown.get("silent").await.unwrap(),
        stored.get("silent").await.unwrap(),
    ];
    let listed = shown.list(&SnapshotQuery::of("s".into())).await.unwrap();
    let printed = shown.tree("s").await.unwrap().to_string();
    let whole = shown.list(&SnapshotQuery::of("t".into()).whole()).await.unwrap();
    let raw = stored.get(said[0].clone()).await.unwrap();

    assert_eq!(
        runs.each_ref().map(|run| run.status),
        [SnapshotStatus::Expired, SnapshotStatus::Pending]
    );
    assert_eq!(runs.map(|run| run.bookkeeping.is_empty()), [true, false]);
    assert_eq!(listed.items[0].status, SnapshotStatus::Expired);
    assert!(printed.contains("silent expired"), "{printed}");
    assert!(whole.items[0].state.as_ref().unwrap().messages.is_empty());
    assert_eq!(raw.state.unwrap().messages.len(), 2);
}

#[tokio::test]
async fn without_a_store_there_is_no_archive() {
    let error = replying("chef").define().unwrap().archive().unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(error.is(STORE_NOT_CONFIGURED));
}
