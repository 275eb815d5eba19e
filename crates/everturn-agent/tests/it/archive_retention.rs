//! Which snapshots are kept, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use everturn_agent::archive::{Archive, Retention, TrimmedSession};
use everturn_agent::store::{MemoryStore, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{Agent, Clock, Snapshot, SnapshotId, SnapshotStatus};
use jiff::Timestamp;

use crate::support::{replying, snapshots};

/// A store, an agent and an archive that go by one clock, which stands still unless it is moved.
struct World {
    store: MemoryStore,
    agent: Agent,
    archive: Archive,
    hour: Arc<AtomicI64>,
}

impl World {
    fn new() -> Self {
        let (store, hour) = (MemoryStore::new(), Arc::new(AtomicI64::new(0)));
        let clock = Clock::new({
            let hour = Arc::clone(&hour);
            move || Timestamp::from_second(hour.load(Ordering::SeqCst) * 3_600).unwrap()
        });
        let agent = replying("chef")
            .store(store.clone())
            .clock(clock)
            .define()
            .unwrap();
        let archive = agent.archive().unwrap();
        Self {
            store,
            agent,
            archive,
            hour,
        }
    }

    async fn say(&self, hour: i64, session: &str) -> SnapshotId {
        self.hour.store(hour, Ordering::SeqCst);
        let reply = self.agent.chat().resume(session).run("hello").await.unwrap();
        reply.snapshot_id().unwrap().clone()
    }

    async fn left(&self, session: &str) -> Vec<SnapshotId> {
        let snapshots = snapshots(&self.store, &session.into()).await;
        snapshots
            .into_iter()
            .map(|snapshot| snapshot.snapshot_id)
            .collect()
    }
}

fn hours(count: u64) -> Duration {
    Duration::from_hours(count)
}

#[tokio::test]
async fn old_snapshots_are_deleted_and_the_session_can_still_be_resumed() {
    let world = World::new();
    let old = [world.say(1, "s").await, world.say(2, "s").await];
    let young = world.say(10, "s").await;
    world.hour.store(11, Ordering::SeqCst);

    let report = world
        .archive
        .retain(&Retention::default().no_older_than(hours(5)))
        .await
        .unwrap();
    let resumed = world.say(12, "s").await;

    assert_eq!((report.sessions, report.snapshots), (1, 2));
    assert_eq!(
        report.trimmed,
        [TrimmedSession {
            session_id: "s".into(),
            snapshots: 2,
            gone: false
        }]
    );
    assert!(!world.left("s").await.contains(&old[0]));
    assert_eq!(world.left("s").await, [young, resumed]);
}

#[tokio::test]
async fn a_session_of_old_snapshots_only_is_deleted() {
    let world = World::new();
    world.say(1, "old").await;
    world.say(2, "old").await;
    let young = world.say(90, "young").await;
    world.hour.store(100, Ordering::SeqCst);

    let report = world
        .archive
        .retain(&Retention::default().no_older_than(hours(50)))
        .await
        .unwrap();

    assert_eq!((report.sessions, report.snapshots), (2, 2));
    assert!(report.trimmed[0].gone);
    assert!(world.left("old").await.is_empty());
    assert_eq!(world.left("young").await, [young]);
}

#[tokio::test]
async fn a_limit_per_session_keeps_its_newest_snapshots() {
    let world = World::new();
    let mut made = Vec::new();
    for hour in 0..6 {
        made.push(world.say(hour, "s").await);
    }
    let other = world.say(7, "t").await;

    world
        .archive
        .retain(&Retention::default().newest(2))
        .await
        .unwrap();
    let two = world.left("s").await;
    world
        .archive
        .retain(&Retention::default().newest(0))
        .await
        .unwrap();

    assert_eq!(two, made[4..]);
    assert_eq!(
        world.left("s").await,
        made[5..],
        "what is resumed stays in any case"
    );
    assert_eq!(world.left("t").await, [other]);
}

#[tokio::test]
async fn labels_protect_unless_said_otherwise() {
    let world = World::new();
    let labelled = world.say(1, "s").await;
    world.archive.label(labelled.clone(), "keep").await.unwrap();
    world.say(2, "s").await;
    world.hour.store(100, Ordering::SeqCst);
    let rules = Retention::default().no_older_than(hours(1));

    let report = world.archive.retain(&rules).await.unwrap();
    let kept = world.left("s").await;
    let resumable = world.agent.chat().resume("s").open().await.is_ok();
    let all = world.archive.retain(&rules.even_labelled()).await.unwrap();

    assert_eq!(report.snapshots, 1);
    assert!(!report.trimmed[0].gone && resumable);
    assert_eq!(kept, [labelled]);
    assert!(all.trimmed[0].gone);
    assert!(world.left("s").await.is_empty());
}

#[tokio::test]
async fn pending_runs_are_not_deleted() {
    let world = World::new();
    world.say(1, "s").await;
    let run = Snapshot {
        status: SnapshotStatus::Pending,
        ..Snapshot::new("run".into(), "s".into(), Timestamp::from_second(7_200).unwrap())
    };
    let mutation = Mutation::new(move |_| Ok(Some(run.clone())));
    let scope = Scope::default();
    world
        .store
        .save(&scope, Some(&"run".into()), Precondition::None, mutation)
        .await
        .unwrap();
    world.hour.store(1_000, Ordering::SeqCst);

    let rules = Retention::default()
        .no_older_than(hours(1))
        .newest(0)
        .even_labelled();
    world.archive.retain(&rules).await.unwrap();

    assert_eq!(world.left("s").await, ["run".into()]);
}

#[tokio::test]
async fn without_rules_nothing_is_deleted_and_every_session_is_examined() {
    let world = World::new();
    for number in 0..250 {
        let session = format!("session {number}");
        world.say(number, &session).await;
        world.say(number, &session).await;
    }

    let nothing = world.archive.retain(&Retention::default()).await.unwrap();
    let report = world
        .archive
        .retain(&Retention::default().newest(1))
        .await
        .unwrap();
    let again = world
        .archive
        .retain(&Retention::default().newest(1))
        .await
        .unwrap();

    assert_eq!((nothing.sessions, nothing.snapshots), (250, 0));
    assert_eq!(
        (report.sessions, report.snapshots, report.trimmed.len()),
        (250, 250, 250)
    );
    assert_eq!((again.sessions, again.snapshots), (250, 0));
}

#[tokio::test]
async fn an_age_longer_than_all_time_deletes_nothing() {
    let world = World::new();
    world.say(1, "s").await;

    let report = world
        .archive
        .retain(&Retention::default().no_older_than(Duration::MAX))
        .await
        .unwrap();

    assert_eq!(report.snapshots, 0);
}
