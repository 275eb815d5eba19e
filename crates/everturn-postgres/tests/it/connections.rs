//! The number of connections of a process; fewer than the maximum are sufficient.

use everturn_agent::store::{Precondition, SessionStore};
use everturn_agent::{Snapshot, SnapshotId};
use everturn_ai::Message;
use everturn_core::stream_log::{JsonText, Position, StreamKey, StreamLog};
use everturn_postgres::{PostgresStore, PostgresStreamLog};
use everturn_testkit::eventually;
use futures::StreamExt;
use futures::future::join_all;

use crate::support::{Way, at, new_schema, row, said, scope, set, sql};

const TURNS: i64 = 5;

/// Commits turns one after the other.
async fn converse(store: &PostgresStore, session: &str) {
    let mut last: Option<Snapshot> = None;
    for number in 0..TURNS {
        let mut next = row(&format!("{session}-{number}"), session, number);
        let mut state = last
            .as_ref()
            .and_then(|last| last.state.clone())
            .unwrap_or_else(|| said(&[]));
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
    let names: Vec<String> = (0..sessions).map(|number| format!("s{number}")).collect();
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
    let of_store = open_connections(&url, &program).await;
    let log = PostgresStreamLog::options(&named)
        .schema(new_schema())
        .open()
        .await
        .unwrap();
    join_all((0..40).map(|number| write_stream(&log, number))).await;
    let of_both = open_connections(&url, &program).await;

    assert_eq!((of_store, of_both), (11, 21));
    assert_eq!(store.metrics().connections, 10);
}

#[tokio::test]
async fn all_turns_succeed_where_the_server_allows_fewer_connections_than_wanted() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let (schema, role) = (new_schema(), new_schema());
    sql(&url, &PostgresStore::migration_sql(&schema, 0)).await;
    let grants = format!(
        "CREATE ROLE {role} LOGIN CONNECTION LIMIT 4; GRANT USAGE ON SCHEMA \"{schema}\" TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \"{schema}\" TO {role};"
    );
    sql(&url, &grants).await;
    let limited = url.replace("everturn@", &format!("{role}@"));
    let store = PostgresStore::options(&limited)
        .schema(&schema)
        .open()
        .await
        .unwrap();

    converse_at_once(&store, 40).await;

    let metrics = store.metrics();
    assert!((1..=4).contains(&metrics.connections), "{metrics:?}");
    // A refusal makes calls wait for the connections that are open. It is neither a lost connection nor a
    // further attempt.
    assert_eq!((metrics.lost_connections, metrics.retries), (0, 0));
    assert_eq!(metrics.commits, 40 * u64::try_from(TURNS).unwrap());
}
