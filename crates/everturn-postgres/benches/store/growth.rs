//! Bytes per text, and whether a long conversation is slower than a short one.

use crate::conversation::{Conversation, TURN, compare_pace, kib};
use crate::schema::Schema;

pub(crate) fn run(runtime: &tokio::runtime::Runtime, url: &str) {
    println!("growth: one session, turns of 2 KiB");
    println!(
        "{:>7} {:>12} {:>12} {:>12} {:>10}",
        "turns", "compression", "text KiB", "disk KiB", "disk/text"
    );
    for turns in [400, 10_000] {
        for compressed in [false, true] {
            runtime.block_on(bytes(url, turns, compressed));
        }
    }
    println!();
    println!("time per turn in one session (median)");
    runtime.block_on(pace(url));
}

async fn bytes(url: &str, turns: usize, compressed: bool) {
    let schema = Schema::new(url);
    let store = schema
        .open(|options| {
            if compressed {
                options
            } else {
                options.encoding(everturn_postgres::Encoding::default().without_compression())
            }
        })
        .await;
    let client = schema.connect().await;
    let size = "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n \
                ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";
    let empty: i64 = client
        .query_one(size, &[&schema.name])
        .await
        .expect("a size")
        .get(0);
    let mut conversation = Conversation::new("s", 1);
    for _ in 0..turns {
        conversation.save_turn(&store).await;
    }
    let full: i64 = client
        .query_one(size, &[&schema.name])
        .await
        .expect("a size")
        .get(0);
    let disk = usize::try_from(full - empty).expect("it grew");
    let (text, disk) = (kib(turns * TURN), kib(disk));
    let compression = if compressed { "zstd" } else { "none" };
    println!(
        "{turns:>7} {compression:>12} {text:>12.0} {disk:>12.0} {:>10.2}",
        disk / text
    );
    drop(client);
    schema.drop().await;
}

async fn pace(url: &str) {
    let schema = Schema::new(url);
    let store = schema.open(|options| options).await;
    compare_pace(&store).await;
    schema.drop().await;
}
