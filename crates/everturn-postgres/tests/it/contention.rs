//! A writer whose session others keep changing: it locks the session after three lost races, within its
//! deadline.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_agent::store::{
    Journal, JournalGuard, JournalKey, JournalRecord, Lease, Precondition, SAVE_UNKNOWN,
};
use everturn_core::Status;
use everturn_postgres::PostgresStore;
use serde_json::json;
use tokio::time::Instant;
use tokio_postgres::NoTls;

use crate::support::proxy::waylay;
use crate::support::{Way, get, new_schema, options, put, row, scope, state_of};

/// The statement of a commit, and that of an append.
const COMMIT: &str = ".session SET version";
const APPEND: &str = ".journal (tenant, session, turn";

/// How long a commit of the rival waits for a locked session.
const RIVAL_PATIENCE: Duration = Duration::from_millis(300);

const PATIENCE: Duration = Duration::from_secs(2);

/// A store whose session a rival changes whenever a statement with a text is about to be run.
struct Race {
    store: PostgresStore,
    rival: PostgresStore,
    /// Whether the rival was faster, each time.
    wins: Arc<Mutex<Vec<bool>>>,
}

impl Race {
    /// After so many wins, the session stays locked.
    async fn new(way: Way, text: &'static str, wins_before_lock: usize) -> Option<Self> {
        let (url, schema) = (way.url()?, new_schema());
        // Not through a pooler: PgBouncer 1.18 can crash when a statement is cancelled.
        let rival = options(&Way::Direct.url()?, &schema)
            .patience(RIVAL_PATIENCE)
            .without_listening();
        let rival = rival.open().await.unwrap();
        put(&rival, row("first", "s", 1)).await.unwrap();
        let wins = Arc::<Mutex<Vec<bool>>>::default();
        let (faster, counted) = (rival.clone(), Arc::clone(&wins));
        let lock = format!("BEGIN; SELECT 1 FROM {schema}.session FOR UPDATE");
        let direct = url.clone();
        let change = move || {
            let (rival, wins) = (faster.clone(), Arc::clone(&counted));
            let (direct, lock) = (direct.clone(), lock.clone());
            async move {
                let number = wins.lock().unwrap().len();
                if number == wins_before_lock {
                    return;
                }
                let won = put(&rival, row(&format!("rival-{number}"), "s", 2)).await.is_ok();
                wins.lock().unwrap().push(won);
                if number + 1 == wins_before_lock {
                    let (client, connection) = tokio_postgres::connect(&direct, NoTls).await.unwrap();
                    tokio::spawn(connection);
                    client.batch_execute(&lock).await.unwrap();
                    // The connection, and its lock, live as long as the test.
                    std::mem::forget(client);
                }
            }
        };
        let config: tokio_postgres::Config = url.parse().unwrap();
        let port = config.get_ports()[0];
        let behind = waylay(port, text, change).await;
        let behind = url.replace(&format!(":{port}/"), &format!(":{behind}/"));
        assert_ne!(behind, url);
        let store = options(&behind, &schema).patience(PATIENCE).without_listening();
        let store = store.open().await.unwrap();
        Some(Self { store, rival, wins })
    }

    fn wins(&self) -> Vec<bool> {
        self.wins.lock().unwrap().clone()
    }
}

async fn a_commit_wins(way: Way) {
    let Some(race) = Race::new(way, COMMIT, usize::MAX).await else {
        return;
    };
    let mut branch = row("branch", "s", 3);
    branch.parent_id = Some("first".into());
    branch.state = Some(state_of(&["hello"]));

    put(&race.store, branch.clone()).await.unwrap();

    assert_eq!(race.wins(), [true, true, true, false]);
    assert_eq!(get(&race.rival, "branch").await.unwrap().state, branch.state);
    put(&race.rival, row("after", "s", 4)).await.unwrap();
}

#[tokio::test]
async fn a_commit_that_loses_three_races_locks_its_session() {
    a_commit_wins(Way::Direct).await;
}

#[tokio::test]
async fn a_commit_that_loses_three_races_locks_its_session_through_a_pooler() {
    a_commit_wins(Way::Pooled).await;
}

#[tokio::test]
async fn a_record_that_loses_three_races_locks_its_session() {
    let Some(race) = Race::new(Way::Direct, APPEND, usize::MAX).await else {
        return;
    };
    let key = JournalKey::new("s".into(), "t");
    let record = JournalRecord {
        sequence: 0,
        body: json!("sent"),
    };
    let guard = JournalGuard::new("reserved".into(), Lease::first(), Precondition::None);

    let scope = scope();
    let added = race.store.append(&scope, &key, record.clone(), Some(&guard));
    added.await.unwrap();

    assert_eq!(race.wins(), [true, true, true, false]);
    assert_eq!(race.rival.read(&scope, &key).await.unwrap(), [record]);
}

#[tokio::test]
async fn a_commit_that_cannot_lock_its_session_is_refused_by_its_deadline() {
    let Some(race) = Race::new(Way::Direct, COMMIT, 3).await else {
        return;
    };
    let begun = Instant::now();
    let refused = put(&race.store, row("second", "s", 4)).await.unwrap_err();

    assert!(begun.elapsed() < PATIENCE.mul_f64(1.5), "{:?}", begun.elapsed());
    assert_eq!(refused.status(), Status::Unavailable, "{refused}");
    assert!(!refused.is(SAVE_UNKNOWN), "{refused}");
    assert_eq!(race.wins(), [true; 3]);
    assert!(get(&race.rival, "second").await.is_none());
}
