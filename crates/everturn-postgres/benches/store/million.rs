//! A million sessions in one schema, against a hundred.

use std::time::Duration;

use everturn_agent::store::{Checksum, Detail, Scope, SessionStore};

use crate::conversation::{Conversation, TIMED, print_medians, time_calls};
use crate::schema::Schema;

const ROUNDS: usize = 51;

/// How many of the sessions are made by the store, and looked up by their names.
const REAL: usize = 100;

pub(crate) fn run(runtime: &tokio::runtime::Runtime, url: &str) {
    println!("many sessions in one schema (median of {ROUNDS}, nothing in memory)");
    print_medians(&TIMED, |sessions| runtime.block_on(measure(url, sessions)));
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

async fn measure(url: &str, sessions: i64) -> Vec<Vec<Duration>> {
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
    let mut times = vec![Vec::new(); TIMED.len()];
    for round in 0..ROUNDS {
        // With nothing in memory but a connection.
        let store = schema.open(|options| options).await;
        let (scope, nobody) = (Scope::default(), "nobody".into());
        let nobody = store.latest(&scope, &nobody, Detail::Metadata).await;
        nobody.expect("a read");
        let session = format!("session-{}", random.usize(..REAL)).as_str().into();
        let calls = time_calls(&store, session, random.i64(60..sessions), round).await;
        for (times, time) in times.iter_mut().zip(calls) {
            times.push(time);
        }
    }
    drop(client);
    schema.drop().await;
    times
}
