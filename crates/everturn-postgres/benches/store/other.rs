//! One session of 400 turns, against the `PostgresSaver` of `LangGraph`.
//!
//! Needs a Python that has `langgraph` and `langgraph-checkpoint-postgres`, named by `EVERTURN_BENCH_PYTHON`.

use std::process::Command;
use std::time::Instant;

use crate::conversation::Conversation;
use crate::schema::Schema;

const TURNS: u32 = 400;

pub(crate) fn run(runtime: &tokio::runtime::Runtime, url: &str) {
    println!("one session of {TURNS} turns of 2 KiB, against LangGraph's PostgresSaver");
    let Ok(python) = std::env::var("EVERTURN_BENCH_PYTHON") else {
        println!("EVERTURN_BENCH_PYTHON names no Python with langgraph");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/store/langgraph_saver.py");
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE");
    let answer = Command::new(python)
        .args([script, url, &TURNS.to_string(), text])
        .output()
        .expect("a Python");
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    let said = String::from_utf8_lossy(&answer.stdout);
    let theirs: f64 = said.trim().parse().expect("seconds");
    let ours = runtime.block_on(async {
        let schema = Schema::new(url);
        let store = schema.open(|options| options).await;
        let mut conversation = Conversation::new("s", 1);
        let start = Instant::now();
        for _ in 0..TURNS {
            conversation.save_turn(&store).await;
        }
        let took = start.elapsed();
        schema.drop().await;
        took.as_secs_f64()
    });
    let rate = |seconds: f64| f64::from(TURNS) / seconds;
    println!(
        "{:>14} {:>22} {:>8}",
        "store turns/s", "PostgresSaver turns/s", "ratio"
    );
    println!(
        "{:>14.0} {:>22.0} {:>8.1}",
        rate(ours),
        rate(theirs),
        theirs / ours
    );
}
