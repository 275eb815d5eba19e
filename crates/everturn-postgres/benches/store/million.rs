//! A million sessions in one schema, against a hundred.

use std::time::{Duration, Instant};

use everturn_agent::store::{Checksum, Cursor, Detail, Scope, SessionQuery, SessionStore, SnapshotQuery};
use jiff::Timestamp;

use crate::conversation::{Conversation, median};
use crate::schema::Schema;

const ROUNDS: usize = 51;

/// How many of the sessions are made by the store, and looked up by their names.
const REAL: usize = 100;

pub(crate) fn run(runtime: &tokio::runtime::Runtime, url: &str) {
    println!("many sessions in one schema (median of {ROUNDS}, nothing in memory)");
    let names = ["latest", "sessions", "sessions, deep", "snapshots", "a turn"];
    print!("{:>10}", "sessions");
    for name in names {
        print!(" {name:>15}");
    }
    println!();
    for sessions in [100, 1_000_000] {
        let times = runtime.block_on(measure(url, sessions));
        print!("{sessions:>10}");
        for time in times {
            print!(" {:>15}", format!("{time:.0?}"));
        }
        println!();
    }
}

/// Creates sessions of one turn each by SQL, because the store would take minutes. Their keys are not hashes
/// of their names, so they can be listed but not looked up.
const FILL: &str = "
    INSERT INTO session (tenant, key, version, tip_at, touched_at, tip, scope, name, tokens)
        SELECT real.tenant, n.key, 2, n.i * 1000000, 0, n.id, real.scope, convert_to('filled-' || n.i, 'UTF8'), '{}'
        FROM n, (SELECT tenant, scope FROM session LIMIT 1) AS real;
    INSERT INTO lineage (tenant, session, number, base, checksum)
        SELECT real.tenant, n.key, 2, 0, 0 FROM n, (SELECT tenant FROM session LIMIT 1) AS real;
    INSERT INTO message (tenant, session, lineage, number, cuts, body, checksum)
        SELECT real.tenant, n.key, 2, 0, 0, real.body, 0 FROM n, (SELECT tenant, body FROM message LIMIT 1) AS real;
    INSERT INTO snapshot (tenant, session, scope, id, created_at, status, orphaned, lineage, up_to, tail, named, checksum)
        SELECT real.tenant, n.key, real.scope, n.id, n.i * 1000000, 'completed', false, 2, 1, 0, true, n.checksum
        FROM n, (SELECT tenant, scope FROM session LIMIT 1) AS real;
    ANALYZE";

async fn fill(client: &tokio_postgres::Client, sessions: i64) {
    let checksums: Vec<i64> = (1..=sessions).map(row_checksum).collect();
    let table = "CREATE TEMP TABLE n (i bigint, key uuid, id bytea, checksum bigint)";
    client.batch_execute(table).await.expect("a table");
    let insert = "INSERT INTO n SELECT i, md5(i::text)::uuid, \
                  convert_to('0198c0de-0000-7000-8000-' || lpad(i::text, 12, '0'), 'UTF8'), checksum \
                  FROM unnest($1::bigint[]) WITH ORDINALITY AS sums (checksum, i)";
    client.execute(insert, &[&checksums]).await.expect("rows");
    client.batch_execute(FILL).await.expect("rows");
}

/// Returns the checksum of the row of the session with a number.
fn row_checksum(number: i64) -> i64 {
    let (name, id) = (
        format!("filled-{number}"),
        format!("0198c0de-0000-7000-8000-{number:012}"),
    );
    let row = Checksum::default().bytes(Scope::default().as_str()).bytes(name);
    let row = row.bytes(id).null().integer(number * 1_000_000).null().null();
    let row = row.text("completed").null().null().null().null().integer(0);
    let row = row.null().integer(2).null().integer(1).integer(0);
    row.null().null().null().integer(1).null().finish()
}

async fn measure(url: &str, sessions: i64) -> Vec<Duration> {
    let schema = Schema::new(url);
    let store = schema.open(|options| options).await;
    for number in 0..REAL {
        Conversation::new(&format!("session-{number}"), 1)
            .save_turn(&store)
            .await;
    }
    let client = schema.connect().await;
    fill(&client, sessions).await;
    let mut random = fastrand::Rng::with_seed(5);
    let scope = Scope::default();
    let mut times = vec![Vec::new(); 5];
    let mut note = |which: usize, start: Instant| times[which].push(start.elapsed());
    for round in 0..ROUNDS {
        // With nothing in memory but a connection.
        let store = schema.open(|options| options).await;
        store
            .latest(&scope, &"nobody".into(), Detail::Metadata)
            .await
            .expect("a read");
        let session = format!("session-{}", random.usize(..REAL)).as_str().into();
        let start = Instant::now();
        store
            .latest(&scope, &session, Detail::Whole)
            .await
            .expect("a read")
            .expect("a row");
        note(0, start);
        let mut query = SessionQuery::default();
        let start = Instant::now();
        store.sessions(&scope, &query).await.expect("a page");
        note(1, start);
        let number = random.i64(60..sessions);
        let created_at = Timestamp::from_nanosecond(i128::from(number) * 1_000_000).expect("a time");
        query.after = Some(Cursor {
            created_at,
            snapshot_id: "x".into(),
        });
        let start = Instant::now();
        store.sessions(&scope, &query).await.expect("a page");
        note(2, start);
        let start = Instant::now();
        store
            .list(&scope, &SnapshotQuery::of(session))
            .await
            .expect("a page");
        note(3, start);
        let mut conversation = Conversation::new(&format!("new-{round}"), 1);
        let start = Instant::now();
        conversation.save_turn(&store).await;
        note(4, start);
    }
    drop(client);
    schema.drop().await;
    times.into_iter().map(median).collect()
}
