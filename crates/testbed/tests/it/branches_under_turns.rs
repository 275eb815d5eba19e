//! A branch is committed during a running turn: both are kept. Repeated a thousand times on every store and
//! from another process, and two hundred times on PostgreSQL, which is slower.
#![cfg(unix)]

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{Detail, MemoryStore, Scope, SessionStore, SnapshotQuery};
use everturn_agent::{Agent, AgentConnection, AgentInit, Snapshot, SnapshotId};
use testbed::worker::{branch, branching};
use tokio::sync::Semaphore;

use crate::processes::{Process, Site};

/// A new conversation is started from time to time, because a file contains its whole conversation.
const CONVERSATIONS: usize = 10;
const CONVERSATIONS_ON_POSTGRES: usize = 2;
const ROUNDS: usize = 100;

/// A conversation whose turns wait inside until they are released.
struct Conversation {
    store: Arc<dyn SessionStore>,
    agent: Agent,
    gate: Arc<Semaphore>,
    /// The snapshot at which branches start, and the one that the next turn continues.
    root: SnapshotId,
    tip: SnapshotId,
}

impl Conversation {
    async fn begin(store: Arc<dyn SessionStore>) -> Self {
        let gate = Arc::new(Semaphore::new(2));
        let agent = branching(Arc::clone(&store), Some(Arc::clone(&gate))).unwrap();
        let root = over(&mut running(&agent, AgentInit::session("s")).await).await;
        let tip = over(&mut running(&agent, AgentInit::snapshot(root.clone())).await).await;
        Self {
            store,
            agent,
            gate,
            root,
            tip,
        }
    }

    /// Makes `commit` commit a branch, whose id it returns, while a turn runs at the tip.
    async fn round(&mut self, commit: impl AsyncFnOnce(&SnapshotId) -> String) {
        let mut turn = running(&self.agent, AgentInit::snapshot(self.tip.clone())).await;
        let branch = SnapshotId::from(commit(&self.root).await);
        self.gate.add_permits(1);
        let next = over(&mut turn).await;

        assert_eq!(self.read(&branch).await.parent_id.as_ref(), Some(&self.root));
        assert_eq!(self.read(&next).await.parent_id.as_ref(), Some(&self.tip));
        self.tip = next;
    }

    async fn read(&self, id: &SnapshotId) -> Snapshot {
        let read = self.store.get(&Scope::default(), id, Detail::Metadata).await;
        read.unwrap().expect("a turn that was acknowledged is kept")
    }

    /// Checks that both the conversation and every branch exist, and nothing else.
    async fn end(self) {
        let tip = self.store.get(&Scope::default(), &self.tip, Detail::Whole).await;
        let messages = tip.unwrap().unwrap().state.unwrap().messages;
        assert_eq!(messages.len(), 2 * (2 + ROUNDS));
        let query = SnapshotQuery::of("s".into()).limit(1_000);
        let all = self.store.list(&Scope::default(), &query).await.unwrap().items;
        assert_eq!(all.len(), 2 + 2 * ROUNDS);
    }
}

/// Starts a turn and waits until it runs.
async fn running(agent: &Agent, init: AgentInit) -> AgentConnection {
    let mut connection = agent.connect(init);
    connection.send("go on").await.unwrap();
    connection.close();
    connection.next().await.expect("a turn that runs says so");
    connection
}

async fn over(turn: &mut AgentConnection) -> SnapshotId {
    let output = turn.output().await.unwrap();
    assert_eq!(output.error, None);
    output.snapshot_id.unwrap()
}

async fn in_one_process(open: impl AsyncFn() -> Arc<dyn SessionStore>) {
    let store = open().await;
    let mut conversation = Conversation::begin(Arc::clone(&store)).await;
    let other = branching(store, None).unwrap();
    for _ in 0..ROUNDS {
        conversation
            .round(async |root| branch(&other, root.as_str()).await.unwrap())
            .await;
    }
    conversation.end().await;
}

async fn across_two_processes(site: Site) {
    let mut orders = site.orders(Duration::from_secs(30));
    orders.branches = true;
    let mut worker = Process::start(&orders);
    let mut conversation = Conversation::begin(site.store.open().await.unwrap()).await;
    worker.expect_line("ready");
    for _ in 0..ROUNDS {
        conversation
            .round(async |root| {
                worker.tell(root.as_str());
                worker.expect_line("branched")
            })
            .await;
    }
    conversation.end().await;
}

#[tokio::test]
async fn a_thousand_branches_and_turns_are_kept_in_memory() {
    for _ in 0..CONVERSATIONS {
        in_one_process(async || Arc::new(MemoryStore::new()) as Arc<dyn SessionStore>).await;
    }
}

#[tokio::test]
async fn a_thousand_branches_and_turns_are_kept_on_files() {
    for _ in 0..CONVERSATIONS {
        let site = Site::files();
        in_one_process(async || site.store.open().await.unwrap()).await;
    }
}

#[tokio::test]
async fn a_thousand_branches_and_turns_are_kept_on_sqlite() {
    for _ in 0..CONVERSATIONS {
        let site = Site::sqlite();
        in_one_process(async || site.store.open().await.unwrap()).await;
    }
}

#[tokio::test]
async fn two_hundred_branches_and_turns_are_kept_on_postgres() {
    for _ in 0..CONVERSATIONS_ON_POSTGRES {
        let Some(site) = Site::postgres() else {
            return;
        };
        in_one_process(async || site.store.open().await.unwrap()).await;
    }
}

#[tokio::test]
async fn a_thousand_branches_of_another_process_are_kept_on_files() {
    for _ in 0..CONVERSATIONS {
        across_two_processes(Site::files()).await;
    }
}

#[tokio::test]
async fn a_thousand_branches_of_another_process_are_kept_on_sqlite() {
    for _ in 0..CONVERSATIONS {
        across_two_processes(Site::sqlite()).await;
    }
}

#[tokio::test]
async fn two_hundred_branches_of_another_process_are_kept_on_postgres() {
    for _ in 0..CONVERSATIONS_ON_POSTGRES {
        let Some(site) = Site::postgres() else {
            return;
        };
        across_two_processes(site).await;
    }
}
