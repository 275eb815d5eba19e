//! The number of connections of a process; fewer than the maximum are sufficient.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_agent::store::{Precondition, SessionStore};
use everturn_agent::{Snapshot, SnapshotId};
use everturn_ai::Message;
use everturn_core::stream_log::{JsonText, Position, StreamKey, StreamLog};
use everturn_postgres::{PostgresStore, PostgresStreamLog};
use everturn_testkit::eventually;
use futures::StreamExt;
use futures::future::join_all;

use crate::support::{Way, at, new_schema, row, scope, set, sql, state_of};

const TURNS: i64 = 5;

/// Commits turns one after the other.
async fn converse(store: &PostgresStore, session: &str) {
    let mut last: Option<Snapshot> = None;
    for number in 0..TURNS {
        let mut next = row(&format!("{session}-{number}"), session, number);
        let mut state = last
            .as_ref()
            .and_then(|last| last.state.clone())
            .unwrap_or_else(|| state_of(&[]));
        state.messages.push(Message::user(format!("question {number}")));
        next.created_at = at(number);
        next.state = Some(state);
        next.parent_id = last.as_ref().map(|last| last.snapshot_id.clone());
        let id: SnapshotId = next.snapshot_id.clone();
        let tip = Precondition::Tip(next.parent_id.clone());
        let saved = store.save(&scope(), Some(&id), tip, set(next)).await;
        last = saved.expect("a turn is saved");
    }
}

async fn converse_at_once(store: &PostgresStore, sessions: usize) {
    let names: Vec<String> = (0..sessions).map(|_| new_schema()).collect();
    join_all(names.iter().map(|name| converse(store, name))).await;
}

async fn write_stream(log: &PostgresStreamLog, number: usize) {
    let key = StreamKey::new("ann", format!("stream {number}"));
    let writer = log.open(&key).await.unwrap();
    writer.append(JsonText::of(&"chunk").unwrap()).await.unwrap();
    writer.finish(Ok(JsonText::of(&"done").unwrap())).await.unwrap();
    let read = log.read(&key, Position::START).await.unwrap();
    assert_eq!(read.count().await, 2);
}

/// Returns the number of connections of a program.
async fn open_connections(url: &str, program: &str) -> usize {
    let counted = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{program}'");
    sql(url, &counted).await.unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_store_has_eleven_connections_and_a_stream_log_ten() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let program = new_schema();
    let named = format!("{url}?application_name={program}");
    let store = PostgresStore::options(&named)
        .schema(new_schema())
        .open()
        .await
        .unwrap();
    eventually("the store listens", async || store.metrics().is_listening).await;

    converse_at_once(&store, 40).await;
    assert_eq!(store.metrics().connections, 10);
    let of_store = open_connections(&url, &program).await;
    let program_of_log = new_schema();
    let log = PostgresStreamLog::options(format!("{url}?application_name={program_of_log}"))
        .schema(new_schema())
        .open()
        .await
        .unwrap();
    join_all((0..40).map(|number| write_stream(&log, number))).await;
    let of_log = open_connections(&url, &program_of_log).await;

    assert_eq!((of_store, of_log), (11, 10));
}

#[tokio::test]
async fn idle_connections_above_one_are_closed() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let program = new_schema();
    let store = PostgresStore::options(format!("{url}?application_name={program}"))
        .schema(new_schema())
        .without_listening()
        .open()
        .await
        .unwrap();

    converse_at_once(&store, 40).await;
    let busy = open_connections(&url, &program).await;
    eventually("one connection is left", async || {
        open_connections(&url, &program).await == 1
    })
    .await;
    converse(&store, "later").await;

    assert_eq!(busy, 10);
    let metrics = store.metrics();
    assert_eq!((metrics.lost_connections, metrics.retries), (0, 0));
}

/// The connection string of a new role that may have so many connections, for a schema with tables.
async fn limited(url: &str, schema: &str, connections: usize) -> String {
    let role = new_schema();
    let grants = format!(
        "CREATE ROLE {role} LOGIN CONNECTION LIMIT {connections}; GRANT USAGE ON SCHEMA \"{schema}\" TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \"{schema}\" TO {role};"
    );
    sql(url, &grants).await;
    url.replace("everturn@", &format!("{role}@"))
}

async fn open(url: &str, schema: &str) -> PostgresStore {
    PostgresStore::options(url).schema(schema).open().await.unwrap()
}

#[tokio::test]
async fn all_turns_succeed_where_the_server_allows_fewer_connections_than_wanted() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let schema = new_schema();
    sql(&url, &PostgresStore::migration_sql(&schema, 0)).await;
    let store = open(&limited(&url, &schema, 4).await, &schema).await;

    converse_at_once(&store, 40).await;

    let metrics = store.metrics();
    assert!((1..=4).contains(&metrics.connections), "{metrics:?}");
    // A refusal makes calls wait for the connections that are open. It is neither a lost connection nor a
    // further attempt.
    assert_eq!((metrics.lost_connections, metrics.retries), (0, 0));
    assert_eq!(metrics.commits, 40 * u64::try_from(TURNS).unwrap());
}

#[tokio::test]
async fn an_idle_process_leaves_its_connections_to_another_one() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let schema = new_schema();
    sql(&url, &PostgresStore::migration_sql(&schema, 0)).await;
    let limited = limited(&url, &schema, 6).await;
    let first = open(&limited, &schema).await;
    converse_at_once(&first, 40).await;

    let second = open(&limited, &schema).await;
    converse_at_once(&second, 40).await;

    assert_eq!(second.metrics().commits, 40 * u64::try_from(TURNS).unwrap());
    eventually("the second has further connections", async || {
        converse_at_once(&second, 40).await;
        second.metrics().connections > 1
    })
    .await;
}

/// Commits turns of many sessions until the test stops it.
async fn converse_until(store: PostgresStore, stop: Arc<AtomicBool>) {
    let talk = async || {
        while !stop.load(Ordering::Relaxed) {
            converse(&store, &new_schema()).await;
        }
    };
    join_all((0..20).map(|_| talk())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_process_leaves_another_one_its_share_of_the_connections() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let schema = new_schema();
    sql(&url, &PostgresStore::migration_sql(&schema, 0)).await;
    let limited = limited(&url, &schema, 6).await;
    let (stop, first) = (Arc::<AtomicBool>::default(), open(&limited, &schema).await);
    let busy = tokio::spawn(converse_until(first.clone(), Arc::clone(&stop)));
    eventually("the first has every connection", async || {
        first.metrics().connections >= 5
    })
    .await;

    let second = open(&limited, &schema).await;
    let second_busy = tokio::spawn(converse_until(second.clone(), Arc::clone(&stop)));
    eventually("the second has two connections", async || {
        second.metrics().connections >= 2
    })
    .await;
    let commits = second.metrics().commits;
    eventually("the second commits", async || {
        second.metrics().commits > commits + 200
    })
    .await;
    stop.store(true, Ordering::Relaxed);

    // Every turn of both was saved.
    busy.await.unwrap();
    second_busy.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throughput_falls_no_faster_than_the_number_of_connections() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let schema = new_schema();
    sql(&url, &PostgresStore::migration_sql(&schema, 0)).await;
    let mut stores = vec![(10, open(&url, &schema).await)];
    for limit in [8, 6, 4] {
        // One of them listens.
        let connections = u64::try_from(limit).unwrap() - 1;
        stores.push((
            connections,
            open(&limited(&url, &schema, limit).await, &schema).await,
        ));
    }
    let stop = Arc::<AtomicBool>::default();
    let busy: Vec<_> = stores
        .iter()
        .map(|(_, store)| tokio::spawn(converse_until(store.clone(), Arc::clone(&stop))))
        .collect();
    eventually("there are enough turns", async || {
        stores[0].1.metrics().commits > 2_000
    })
    .await;
    let commits: Vec<_> = stores
        .iter()
        .map(|(connections, store)| (*connections, store.metrics().commits))
        .collect();
    stop.store(true, Ordering::Relaxed);
    for busy in busy {
        busy.await.unwrap();
    }

    for (connections, count) in &commits {
        assert!(2 * count * 10 >= connections * commits[0].1, "{commits:?}");
    }
}
