//! Taking up a long conversation in a process that has not seen it, against reading and parsing the same
//! bytes.

use std::time::{Duration, Instant};

use everturn_agent::store::{Detail, Scope, SessionStore};
use everturn_ai::History;
use everturn_sqlite::{Durability, SqliteStore};

use crate::conversation::{Conversation, median, ratio};

const TURNS: usize = 400;
const ROUNDS: usize = 41;

pub(crate) fn run(runtime: &tokio::runtime::Runtime) {
    println!("cold resume of a session of {TURNS} turns of 2 KiB (median of {ROUNDS})");
    println!(
        "{:>12} {:>10} {:>22} {:>8} {:>14}",
        "compression", "resume", "read and parse a file", "ratio", "warm resume"
    );
    for compressed in [false, true] {
        runtime.block_on(measure(compressed));
    }
}

async fn measure(compressed: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = SqliteStore::options(folder.path().join("sessions.db")).durability(Durability::Normal);
    let options = if compressed {
        options
    } else {
        options.encoding(everturn_sqlite::Encoding::default().without_compression())
    };
    let store = options.clone().open().await.expect("a store");
    let mut conversation = Conversation::new("s", 1);
    for _ in 0..TURNS {
        conversation.save_turn(&store).await;
    }
    store.checkpoint().await.expect("a checkpoint");
    let file = folder.path().join("messages");
    std::fs::write(&file, encode(&conversation.state.messages, compressed)).expect("a file");

    let (mut cold, mut parsed, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let store = options.clone().open().await.expect("a store");
        cold.push(latest(&store).await);
        warm.push(latest(&store).await);
        let start = Instant::now();
        let history = decode(&std::fs::read(&file).expect("the file"), compressed);
        parsed.push(start.elapsed());
        assert_eq!(history.len(), 2 * TURNS);
    }
    let (cold, parsed, warm) = (median(cold), median(parsed), median(warm));
    let compression = if compressed { "zstd" } else { "none" };
    println!(
        "{compression:>12} {cold:>10.1?} {parsed:>22.1?} {:>8.2} {warm:>14.1?}",
        ratio(cold, parsed)
    );
}

async fn latest(store: &SqliteStore) -> Duration {
    let start = Instant::now();
    let row = store
        .latest(&Scope::default(), &"s".into(), Detail::Whole)
        .await
        .expect("a read")
        .expect("a row");
    let took = start.elapsed();
    assert_eq!(row.state.expect("a state").messages.len(), 2 * TURNS);
    took
}

/// The bodies of the messages as the store keeps them, each after its length.
fn encode(history: &History, compressed: bool) -> Vec<u8> {
    let mut file = Vec::new();
    for message in history {
        let text = serde_json::to_vec(message).expect("JSON");
        let body = if compressed {
            zstd::bulk::compress(&text, 1).expect("zstd")
        } else {
            text
        };
        file.extend(u32::try_from(body.len()).expect("short").to_le_bytes());
        file.extend(body);
    }
    file
}

fn decode(mut file: &[u8], compressed: bool) -> History {
    let mut decompressor = zstd::bulk::Decompressor::new().expect("zstd");
    let mut history = History::new();
    while let Some((length, rest)) = file.split_first_chunk::<4>() {
        let (body, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let message = if compressed {
            let text = decompressor.decompress(body, 64 * 1024).expect("zstd");
            serde_json::from_slice(&text)
        } else {
            serde_json::from_slice(body)
        };
        history.push(message.expect("a message"));
        file = rest;
    }
    history
}
