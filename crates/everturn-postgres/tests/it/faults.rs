//! Whatever happens to the server and to connections, what was acknowledged is there once, and workers go on
//! by themselves.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use everturn_agent::store::{
    Detail, Journal, JournalKey, JournalRecord, Mutation, Precondition, SAVE_UNKNOWN, SessionStore,
    SnapshotQuery,
};
use everturn_agent::{Snapshot, SnapshotId};
use everturn_ai::Message;
use everturn_postgres::PostgresStore;
use everturn_testkit::certify::faults::{Fault, Faults};
use everturn_testkit::certify::{certify_crashes, certify_faults};
use everturn_testkit::real_pause;
use serde_json::json;

use crate::support::proxy::Proxy;
use crate::support::server::Server;
use crate::support::{Way, at, new_schema, options, row, said, schema_of, scope, sql};

const WORKERS: usize = 6;

/// The acknowledged work of a worker.
struct Done {
    session: String,
    turns: usize,
}

/// Commits turns, counts and journals until the test stops it. Everything must be acknowledged.
async fn work(store: PostgresStore, number: usize, stop: Arc<AtomicBool>) -> Done {
    let session = format!("s{number}");
    let mut state = said(&[]);
    let mut last: Option<SnapshotId> = None;
    let mut turns = 0;
    while !stop.load(Ordering::Relaxed) || turns == 0 {
        let key = JournalKey::new(session.as_str().into(), format!("t{turns}"));
        let record = JournalRecord {
            sequence: 0,
            body: json!({"turn": turns}),
        };
        store
            .append(&scope(), &key, record, None)
            .await
            .expect("a record is written once");
        state.messages.push(Message::user(format!("question {turns}")));
        state.messages.push(Message::model(format!("answer {turns}")));
        let mut next = row(&turn_id(number, turns), &session, i64::try_from(turns).unwrap());
        next.parent_id.clone_from(&last);
        next.state = Some(state.clone());
        let id = next.snapshot_id.clone();
        let condition = Precondition::unfollowed(last.clone());
        let mutation = Mutation::new(move |_| Ok(Some(next.clone())));
        store
            .commit(&scope(), Some(&id), condition, mutation, &[key])
            .await
            .expect("a turn is committed")
            .expect("the mutation writes");
        last = Some(id);
        turns += 1;
        count_up(&store, &session).await;
    }
    Done { session, turns }
}

fn turn_id(number: usize, turn: usize) -> String {
    format!("turn-{number}-{turn:06}")
}

/// Adds one to the count that a snapshot of the session holds: a commit that is carried out twice counts
/// twice.
async fn count_up(store: &PostgresStore, session: &str) {
    let id: SnapshotId = format!("count-{session}").as_str().into();
    let name = format!("counting-{session}");
    let add = Mutation::new(move |existing: Option<&Snapshot>| {
        let before = existing.and_then(|row| row.index).unwrap_or(0);
        let mut next = row("count", &name, 1);
        next.created_at = at(1);
        next.index = Some(before + 1);
        Ok(Some(next))
    });
    store
        .save(&scope(), Some(&id), Precondition::None, add)
        .await
        .expect("it is counted");
}

/// Checks that what was acknowledged is there, once.
async fn check(store: &PostgresStore, done: &Done, number: usize) {
    let page = store
        .list(
            &scope(),
            &SnapshotQuery::of(done.session.as_str().into())
                .oldest_first()
                .limit(1_000),
        )
        .await
        .unwrap();
    let ids: Vec<String> = page.items.iter().map(|row| row.snapshot_id.to_string()).collect();
    let expected: Vec<String> = (0..done.turns.min(1_000))
        .map(|turn| turn_id(number, turn))
        .collect();
    assert_eq!(ids, expected);
    let tip = store
        .latest(&scope(), &done.session.as_str().into(), Detail::Whole)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(tip.state.unwrap().messages.len(), done.turns * 2);
    let count = format!("count-{}", done.session);
    let count = store
        .get(&scope(), &count.as_str().into(), Detail::Metadata)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        count.index,
        Some(done.turns as u64),
        "a commit was lost or carried out twice"
    );
}

/// Lets workers work while `trouble` lasts, then checks what they did. Returns the number of turns.
async fn withstand(worker_url: &str, direct: &str, trouble: impl Future<Output = ()>) -> usize {
    let stop = Arc::<AtomicBool>::default();
    let open = || {
        options(worker_url, "everturn")
            .statement_timeout(Duration::from_secs(2))
            .connect_timeout(Duration::from_secs(2))
            .patience(Duration::from_mins(2))
            .open()
    };
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let store = open().await.unwrap();
        workers.push(tokio::spawn(work(store, number, Arc::clone(&stop))));
    }

    trouble.await;
    stop.store(true, Ordering::Relaxed);

    let fresh = options(direct, "everturn").open().await.unwrap();
    let mut turns = 0;
    for (number, worker) in workers.into_iter().enumerate() {
        let done = worker.await.unwrap();
        check(&fresh, &done, number).await;
        turns += done.turns;
    }
    let found = fresh.verify().await.unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!(found.records, 0, "a committed turn leaves no journal");
    turns
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_of_the_server_lose_and_double_nothing() {
    let Some(server) = Server::start() else {
        return;
    };
    let server = Arc::new(server);
    // The tables are made while nothing is in the way.
    options(&server.url(), "everturn").open().await.unwrap();

    let turns = withstand(&server.url(), &server.url(), async {
        for round in 0..60_u64 {
            let moment = Duration::from_millis(20 + fastrand::u64(..60));
            real_pause(moment, "a crash may fall anywhere into the work").await;
            if round % 6 == 5 {
                let server = Arc::clone(&server);
                tokio::task::spawn_blocking(move || {
                    server.crash();
                    server.go();
                })
                .await
                .unwrap();
            } else {
                let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                                 WHERE application_name = 'everturn' AND random() < 0.7";
                sql(&server.url(), terminate).await;
            }
        }
    })
    .await;

    assert!(turns > 60, "only {turns} turns were committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_or_stall_lose_and_double_nothing() {
    let Some(server) = Server::start() else {
        return;
    };
    options(&server.url(), "everturn").open().await.unwrap();
    let proxy = Proxy::start(server.port(), Duration::from_secs(3)).await;

    let turns = withstand(&Server::url_by(proxy.port), &server.url(), async {
        proxy.faults(150).await;
    })
    .await;

    assert!(turns > 60, "only {turns} turns were committed");
}

#[tokio::test]
async fn every_acknowledged_turn_survives_a_hundred_kills() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let test = "faults::every_acknowledged_turn_survives_a_hundred_kills";
    let open = async |folder: PathBuf| {
        let store = options(&url, &schema_of(&folder))
            .connections(2)
            .without_listening()
            .open()
            .await;
        Arc::new(store.unwrap()) as Arc<dyn SessionStore>
    };

    let certificate = certify_crashes(test, folder.path(), 100, open).await;

    certificate.assert_kept();
}

const STATEMENT_TIMEOUT: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_millis(500);

/// A schema to which faults happen.
struct Schema {
    url: String,
    name: String,
}

impl Schema {
    async fn change(&self, statement: &str) {
        sql(&self.url, &statement.replace('@', &format!("\"{}\".", self.name))).await;
    }
}

#[async_trait]
impl Faults for Schema {
    async fn open(&self) -> Arc<dyn SessionStore> {
        // Each save that waits has a connection, as has each read.
        let options = options(&self.url, &self.name)
            .connections(50)
            .statement_timeout(STATEMENT_TIMEOUT)
            .checkout_timeout(STATEMENT_TIMEOUT)
            .patience(PATIENCE)
            .without_listening();
        Arc::new(options.open().await.unwrap())
    }

    fn busy_timeout(&self) -> Duration {
        PATIENCE + STATEMENT_TIMEOUT * 2
    }

    async fn hold_lock(&self) -> Fault<Box<dyn Send>> {
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        let lock = format!("BEGIN; LOCK TABLE \"{}\".session IN EXCLUSIVE MODE", self.name);
        client.batch_execute(&lock).await.unwrap();
        Fault::Done(Box::new(client))
    }

    async fn damage(&self, _: &SnapshotId) -> Fault<()> {
        self.change("UPDATE @message SET body = set_byte(body, 9, get_byte(body, 9) # 1) WHERE number = 2")
            .await;
        Fault::Done(())
    }

    async fn remove(&self, snapshot: &SnapshotId) -> Fault<()> {
        self.change(&format!("DELETE FROM @snapshot WHERE id = '{snapshot}'"))
            .await;
        Fault::Done(())
    }
}

#[tokio::test]
async fn deadlines_are_kept_and_losses_are_named() {
    let Some(url) = Way::Direct.url() else {
        return;
    };

    let certificate = certify_faults(|| Schema {
        url: url.clone(),
        name: new_schema(),
    })
    .await;

    certificate.assert_kept();
    let excused = |finding: &&everturn_testkit::certify::Finding| finding.excused.is_some();
    assert_eq!(certificate.findings().iter().filter(excused).count(), 0);
}

#[tokio::test]
async fn a_statement_that_nobody_waits_for_any_more_is_not_carried_out() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let schema = Schema {
        url,
        name: new_schema(),
    };
    // So long that the last statement can be cancelled on a busy machine, too.
    let store = options(&schema.url, &schema.name)
        .patience(Duration::from_secs(3))
        .without_listening();
    let store = store.open().await.unwrap();
    let Fault::Done(lock) = schema.hold_lock().await else {
        unreachable!("a table can be locked");
    };
    let late = row("late", "s", 1);

    let saved = crate::support::put(&store, late).await;
    drop(lock);
    // The server grants the lock in the order of the requests, so every statement that waited for it has
    // ended.
    schema.hold_lock().await;

    let refused = saved.unwrap_err();
    assert!(!refused.is(SAVE_UNKNOWN), "the server cancelled it: {refused}");
    assert_eq!(crate::support::get(&store, "late").await, None);
}
