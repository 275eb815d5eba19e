//! A process that dies during a rewind on a linear timeline: the next reader finds the session before or
//! after the rewind, however many snapshots were marked.

use std::sync::Arc;

use everturn_agent::store::{
    MemoryStore, Mutation, Order, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_agent::{Agent, AgentInit, AgentInput, Snapshot, SnapshotId, SnapshotIds, Timeline};

use crate::support::{FaultyStore, Fuse, World, all_chunks, replying};

fn agent(store: &MemoryStore, fuse: &Fuse, ids: SnapshotIds) -> Agent {
    replying("parrot")
        .store(FaultyStore::shared(store, fuse, &Arc::new(World::default())))
        .timeline(Timeline::Linear)
        .snapshot_ids(ids)
        .define()
        .unwrap()
}

async fn turn(agent: &Agent, init: AgentInit, text: &str) -> SnapshotId {
    let mut connection = agent.connect(init);
    connection.send(AgentInput::from(text)).await.unwrap();
    all_chunks(&mut connection).await;
    connection.output().await.unwrap().snapshot_id.unwrap()
}

/// The text of the last message of a snapshot.
fn last_said(snapshot: &Snapshot) -> String {
    let state = snapshot.state.as_ref().unwrap();
    state.messages.last().unwrap().text().into_owned()
}

/// Every snapshot, oldest first.
async fn whole(store: &MemoryStore) -> Vec<Snapshot> {
    let query = SnapshotQuery::of("s".into())
        .oldest_first()
        .with_orphaned()
        .whole();
    store.list(&Scope::default(), &query).await.unwrap().items
}

/// The last message of each snapshot, and whether it is superseded.
type Snapshots = Vec<(String, bool)>;

async fn snapshots(store: &MemoryStore) -> Snapshots {
    let snapshots = whole(store).await;
    assert!(
        snapshots.iter().all(|snapshot| snapshot.bookkeeping.is_empty()),
        "nothing is left to do: {snapshots:?}"
    );
    snapshots
        .iter()
        .map(|snapshot| (last_said(snapshot), snapshot.orphaned))
        .collect()
}

/// A way to go back: to the snapshot of that turn, saying that.
#[derive(Clone, Copy)]
struct Return {
    ids: SnapshotIds,
    to: usize,
    text: &'static str,
}

/// A session of four turns, the last of which replaced one that was left behind: 0, 1, 2 (left behind), then
/// 3 after 1.
fn session(ids: SnapshotIds) -> Vec<Snapshot> {
    let (store, fuse) = (MemoryStore::new(), Fuse::never());
    let agent = agent(&store, &fuse, ids);
    let made = fuse.process(async {
        for text in ["0", "1", "2"] {
            turn(&agent, AgentInit::session("s"), text).await;
        }
        let made = whole(&store).await;
        turn(&agent, AgentInit::snapshot(made[1].snapshot_id.clone()), "3").await;
        whole(&store).await
    });
    made.unwrap()
}

/// A store with these snapshots.
fn stored(snapshots: &[Snapshot]) -> MemoryStore {
    let store = MemoryStore::new();
    Fuse::never().process(async {
        for snapshot in snapshots.iter().cloned() {
            let id = snapshot.snapshot_id.clone();
            let put = Mutation::new(move |_| Ok(Some(snapshot.clone())));
            let scope = Scope::default();
            let saved = store.save(&scope, Some(&id), Precondition::None, put).await;
            saved.unwrap();
        }
    });
    store
}

impl Return {
    /// Goes back in a process that may die.
    fn go(self, store: &MemoryStore, made: &[Snapshot], fuse: &Fuse) -> Option<SnapshotId> {
        let agent = agent(store, fuse, self.ids);
        let to = made[self.to].snapshot_id.clone();
        fuse.process(turn(&agent, AgentInit::snapshot(to), self.text))
    }
}

/// The actions of a later client.
#[derive(Debug, Clone, Copy)]
enum Look {
    List,
    OldestFirst,
    Latest,
    Read,
    Tree,
    Sessions,
    Resume,
}

/// Every way to look.
const LOOKS: [Look; 7] = [
    Look::List,
    Look::OldestFirst,
    Look::Latest,
    Look::Read,
    Look::Tree,
    Look::Sessions,
    Look::Resume,
];

/// The listed snapshots, if requested, and the latest.
type Seen = (Option<Vec<String>>, String);

async fn look(agent: &Agent, look: Look) -> Seen {
    let archive = agent.archive().unwrap();
    let list = async |order| {
        let mut query = SnapshotQuery::of("s".into()).whole().limit(2);
        query.order = order;
        let mut said = Vec::new();
        loop {
            let page = archive.list(&query).await.unwrap();
            said.extend(page.items.iter().map(last_said));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return said,
            }
        }
    };
    let get = async |id: &SnapshotId| last_said(&archive.get(id.clone()).await.unwrap());
    match look {
        Look::List => {
            let mut said = list(Order::Newest).await;
            said.reverse();
            (Some(said.clone()), said.pop().unwrap())
        }
        Look::OldestFirst => {
            let said = list(Order::Oldest).await;
            (Some(said.clone()), said.last().unwrap().clone())
        }
        Look::Latest => (None, last_said(&archive.latest("s").await.unwrap())),
        Look::Read => (None, last_said(&agent.latest_snapshot("s").await.unwrap())),
        Look::Tree => {
            let tree = archive.tree("s").await.unwrap();
            let mut kept = Vec::new();
            for snapshot in tree.snapshots().iter().filter(|snapshot| !snapshot.orphaned) {
                kept.push(get(&snapshot.snapshot_id).await);
            }
            let latest = tree.latest().unwrap().snapshot().snapshot_id.clone();
            (Some(kept), get(&latest).await)
        }
        Look::Sessions => {
            let page = archive.sessions(&SessionQuery::default()).await.unwrap();
            (None, get(&page.items[0].latest.snapshot_id).await)
        }
        Look::Resume => {
            let id = turn(agent, AgentInit::session("s"), "on").await;
            let parent = agent.get_snapshot(id).await.unwrap().parent_id.unwrap();
            (None, get(&parent).await)
        }
    }
}

/// A reader's view, and the content of the store after it.
fn seen(store: &MemoryStore, ids: SnapshotIds, by: Look) -> (Seen, Snapshots) {
    let fuse = Fuse::never();
    let agent = agent(store, &fuse, ids);
    let seen = fuse.process(async { (look(&agent, by).await, snapshots(store).await) });
    seen.unwrap()
}

fn whenever_it_dies(back: Return, looks: &[Look]) {
    let made = session(back.ids);
    for by in looks.iter().copied() {
        let before = seen(&stored(&made), back.ids, by);
        let undisturbed = stored(&made);
        back.go(&undisturbed, &made, &Fuse::never()).unwrap();
        let after = seen(&undisturbed, back.ids, by);
        assert_ne!(before, after);

        let mut outcomes = [0, 0];
        for point in 0.. {
            let store = stored(&made);
            let survived = back.go(&store, &made, &Fuse::burning_at(point)).is_some();
            let seen = seen(&store, back.ids, by);

            assert!(
                seen == before || seen == after,
                "{by:?} at {point}: {seen:?} instead of {after:?}"
            );
            outcomes[usize::from(seen == after)] += 1;
            if survived {
                assert_eq!(seen, after);
                break;
            }
        }
        assert!(outcomes[0] > 0 && outcomes[1] > 3, "{outcomes:?}");
    }
}

/// One that lists, one that reads, and one that goes on.
const SOME: [Look; 3] = [Look::OldestFirst, Look::Latest, Look::Resume];

#[test]
fn a_new_snapshot_replaces_a_branch_in_one_step() {
    let back = Return {
        ids: SnapshotIds::Uuid,
        to: 0,
        text: "other",
    };

    whenever_it_dies(back, &LOOKS);
}

#[test]
fn an_orphaned_branch_is_recovered_in_one_step() {
    let back = Return {
        ids: SnapshotIds::Uuid,
        to: 2,
        text: "back",
    };

    whenever_it_dies(back, &SOME);
}

#[test]
fn reaching_the_end_of_an_orphaned_branch_recovers_it_in_one_step() {
    let back = Return {
        ids: SnapshotIds::ContentAddressed,
        to: 1,
        text: "2",
    };

    whenever_it_dies(back, &SOME);
}

#[test]
fn returning_to_a_snapshot_of_the_branch_is_one_step() {
    let back = Return {
        ids: SnapshotIds::ContentAddressed,
        to: 0,
        text: "1",
    };

    whenever_it_dies(back, &LOOKS);
}

#[test]
fn marks_that_could_not_be_written_are_written_by_the_next_turn_of_the_invocation() {
    let made = session(SnapshotIds::Uuid);
    let store = stored(&made);
    let faulty = FaultyStore::shared(&store, &Fuse::never(), &Arc::default());
    let agent = replying("parrot")
        .store(faulty.clone())
        .timeline(Timeline::Linear)
        .define()
        .unwrap();

    let kept = Fuse::never().process(async {
        faulty.fail_saves_after(1);
        let mut connection = agent.connect(AgentInit::snapshot(made[0].snapshot_id.clone()));
        connection.send("other").await.unwrap();
        while connection.next().await.unwrap().turn_end.is_none() {}
        faulty.fail_saves(false);
        connection.send("on").await.unwrap();
        all_chunks(&mut connection).await;
        connection.output().await.unwrap();
        snapshots(&store).await
    });

    let kept: Vec<String> = kept
        .unwrap()
        .into_iter()
        .filter(|snapshot| !snapshot.1)
        .map(|snapshot| snapshot.0)
        .collect();
    assert_eq!(kept, ["re: 0", "re: other", "re: on"]);
}

#[test]
fn an_unfinished_rewind_of_deleted_snapshots_changes_nothing() {
    let made = session(SnapshotIds::Uuid);
    let store = stored(&made);
    let forged = Mutation::new(|snapshot| {
        let mut snapshot = snapshot.unwrap().clone();
        let rewind = serde_json::json!({"keep": "gone"});
        snapshot.bookkeeping =
            serde_json::from_value(serde_json::json!({ "unfinishedRewind": rewind })).unwrap();
        Ok(Some(snapshot))
    });
    let scope = Scope::default();
    let save = store.save(&scope, Some(&made[3].snapshot_id), Precondition::None, forged);
    Fuse::never().process(save).unwrap().unwrap();

    let looked = seen(&store, SnapshotIds::Uuid, Look::List);

    assert_eq!(looked, seen(&stored(&made), SnapshotIds::Uuid, Look::List));
}
