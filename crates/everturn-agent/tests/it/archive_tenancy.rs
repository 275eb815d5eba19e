//! No archive reaches another tenant's snapshots.

use everturn_agent::archive::{Archive, Import, Retention};
use everturn_agent::store::{MemoryStore, Scope, SessionQuery, SnapshotQuery};
use everturn_core::Status;
use std::time::Duration;

use crate::support::{replying, tell, tenants};

#[tokio::test]
async fn snapshots_of_another_tenant_are_not_read_changed_or_deleted() {
    let store = MemoryStore::new();
    let (agent, ann, bob) = tenants(&store);
    let reply = tell(&agent, &ann, "s", "one").await;
    tell(&agent, &ann, "s", "two").await;
    tell(&agent, &bob, "b", "mine").await;
    let id = reply.snapshot_id().unwrap().clone();
    let hers = agent.archive_in(&ann).unwrap();
    let before = hers.tree("s").await.unwrap();
    let mine = hers.list(&SnapshotQuery::of("b".into())).await.unwrap();
    let his = agent.archive_in(&bob).unwrap();
    let own = his.latest("b").await.unwrap().snapshot_id;

    let refused = [
        his.get(id.clone()).await.err(),
        his.latest("s").await.err(),
        his.ancestors(id.clone()).await.err(),
        his.tree("s").await.err(),
        his.label(id.clone(), "mine").await.err(),
        his.unlabel(id.clone(), "mine").await.err(),
        his.annotate(id.clone(), "mine").await.err(),
        his.diff(id.clone(), own.clone()).await.err(),
        his.diff(own, id.clone()).await.err(),
        his.fork(id.clone(), "new").await.err(),
        his.copy("s", "new").await.err(),
        his.export("s", Vec::new()).await.err(),
    ];
    let listed = his.list(&SnapshotQuery::of("s".into())).await.unwrap();
    let children = his.children(id.clone()).await.unwrap();
    let sessions = his.sessions(&SessionQuery::default()).await.unwrap();
    let deleted = (
        his.delete_snapshot(id.clone()).await.unwrap(),
        his.delete_branch(id.clone()).await.unwrap(),
        his.delete_session("s").await.unwrap(),
    );
    let everything = Retention::default().no_older_than(Duration::ZERO).even_labelled();
    let swept = his
        .with_clock(everturn_agent::Clock::new(|| jiff::Timestamp::MAX))
        .retain(&everything)
        .await;

    for error in refused {
        assert_eq!(error.unwrap().status(), Status::NotFound);
    }
    assert!(listed.items.is_empty() && children.is_empty() && mine.items.is_empty());
    assert_eq!(sessions.items.len(), 1);
    assert_eq!(deleted, (false, 0, 0));
    assert_eq!(swept.unwrap().snapshots, 1);
    assert_eq!(hers.tree("s").await.unwrap(), before);
}

#[tokio::test]
async fn the_same_names_are_free_in_every_tenant() {
    let store = MemoryStore::new();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    agent.chat().resume("s").run("one").await.unwrap();
    let here = Archive::of(store.clone(), Scope::default());
    let there = Archive::of(store, Scope::new("there"));
    let mut file = Vec::new();
    here.export("s", &mut file).await.unwrap();

    there.import(file.as_slice(), Import::default()).await.unwrap();
    there.delete_session("s").await.unwrap();

    assert!(here.latest("s").await.is_ok());
    assert!(there.latest("s").await.is_err());
}
