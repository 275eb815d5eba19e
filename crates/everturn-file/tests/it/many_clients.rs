//! Many clients that save to one large folder at the same time: every call succeeds, and ends by its
//! deadline.
//! `EVERTURN_SOAK=full` runs 512 clients in a folder of 20,000 files.

use std::time::Duration;

use everturn_agent::store::{
    Detail, Expense, Journal, JournalKey, JournalRecord, Mutation, Precondition, Scope, SessionStore,
    TurnAccount, UsageLedger, UsageTotal,
};
use everturn_agent::{SessionId, Snapshot, SnapshotId, Timestamp};
use everturn_core::Result;
use everturn_file::FileStore;
use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use crate::support::put;

/// How much later than its deadline, which is 10 s, a call may end.
const GRACE: Duration = Duration::from_secs(1);

const DEADLINE: Duration = Duration::from_secs(10);

/// The files in the folder, the clients, and the turns of each.
fn size() -> (usize, usize, usize) {
    if std::env::var("EVERTURN_SOAK").is_ok_and(|soak| soak == "full") {
        (20_000, 512, 5)
    } else {
        (1_000, 32, 2)
    }
}

fn turn(client: usize, number: usize) -> Snapshot {
    let second = i64::try_from(number + 1).unwrap();
    Snapshot::new(
        SnapshotId::from(format!("turn-{client}-{number}")),
        SessionId::from(format!("session-{client}")),
        Timestamp::from_second(second).unwrap(),
    )
}

async fn timed<T>(what: &str, call: impl Future<Output = Result<T>>) -> T {
    let begun = Instant::now();
    let outcome = call.await;
    let taken = begun.elapsed();
    assert!(taken < DEADLINE + GRACE, "{what} took {taken:?}");
    outcome.unwrap_or_else(|error| panic!("{what} failed after {taken:?}: {error}"))
}

/// Records, accounts and commits turns, as an agent with tools and limits does.
async fn converse(store: FileStore, client: usize, turns: usize) {
    let scope = Scope::default();
    let mut last: Option<SnapshotId> = None;
    for number in 0..turns {
        let mut next = turn(client, number);
        next.parent_id.clone_from(&last);
        let key = JournalKey::new(next.session_id.clone().unwrap(), format!("{client}-{number}"));
        let record = JournalRecord {
            sequence: 0,
            body: json!("called"),
        };
        timed("append", store.append(&scope, &key, record, None)).await;
        let mut used = UsageTotal::default();
        used.tool_calls = 1;
        let expense = Expense::new().of_turn(TurnAccount::new(key.clone(), last.clone()), used);
        timed("spend", store.spend(&scope, &expense)).await;
        let (id, tip) = (next.snapshot_id.clone(), Precondition::Tip(last));
        let mutation = Mutation::new(move |_| Ok(Some(next.clone())));
        let commit = store.commit(&scope, Some(&id), tip, mutation, std::slice::from_ref(&key));
        timed("commit", commit).await;
        assert!(Journal::read(&store, &scope, &key).await.unwrap().is_empty());
        last = Some(id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_saves_of_many_clients_to_a_large_folder_succeed_by_their_deadline() {
    let (files, clients, turns) = size();
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path()).await.unwrap();
    put(&store, turn(clients, 0), Precondition::None).await.unwrap();
    for number in 0..files {
        let row = turn(clients + 1, number);
        let path = folder.path().join(format!("global/{}.json", row.snapshot_id));
        std::fs::write(path, serde_json::to_vec(&row).unwrap()).unwrap();
    }

    let begun = Instant::now();
    let talks = (0..clients).map(|client| tokio::spawn(converse(store.clone(), client, turns)));
    for talk in join_all(talks).await {
        talk.unwrap();
    }
    println!("{clients} clients took {:?}", begun.elapsed());

    for client in 0..clients {
        let session = SessionId::from(format!("session-{client}"));
        let latest = store.latest(&Scope::default(), &session, Detail::Metadata).await;
        assert_eq!(
            latest.unwrap().unwrap().snapshot_id,
            turn(client, turns - 1).snapshot_id
        );
    }
}
