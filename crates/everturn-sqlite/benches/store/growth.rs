//! Bytes per text, and whether a long conversation is slower than a short one.

use std::time::{Duration, Instant};

use everturn_sqlite::{Durability, SqliteStore};

use crate::conversation::{Conversation, TURN, median, ratio};

pub(crate) fn run(runtime: &tokio::runtime::Runtime) {
    println!("growth: one session, turns of 2 KiB");
    println!(
        "{:>7} {:>12} {:>12} {:>12} {:>10}",
        "turns", "compression", "text KiB", "disk KiB", "disk/text"
    );
    for turns in [400, 10_000] {
        for compressed in [false, true] {
            runtime.block_on(bytes(turns, compressed));
        }
    }
    println!();
    println!("time per turn in one session (median, durability normal)");
    runtime.block_on(pace());
}

async fn bytes(turns: usize, compressed: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = SqliteStore::options(folder.path().join("sessions.db")).durability(Durability::Normal);
    if !compressed {
        options = options.encoding(everturn_sqlite::Encoding::default().without_compression());
    }
    let store = options.open().await.expect("a store");
    let mut conversation = Conversation::new("s", 1);
    for _ in 0..turns {
        conversation.save_turn(&store).await;
    }
    store.checkpoint().await.expect("a checkpoint");
    let (text, disk) = (kib(turns * TURN), kib(bytes_on_disk(folder.path())));
    let compression = if compressed { "zstd" } else { "none" };
    println!(
        "{turns:>7} {compression:>12} {:>12.0} {:>12.0} {:>10.2}",
        text,
        disk,
        disk / text
    );
}

async fn pace() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = SqliteStore::options(folder.path().join("sessions.db")).durability(Durability::Normal);
    let store = options.open().await.expect("a store");
    let (mut short, mut long) = (Conversation::new("short", 1), Conversation::new("long", 2));
    for turn in 0..10_000 {
        long.save_turn(&store).await;
        if turn % 100 == 0 {
            short.save_turn(&store).await;
        }
    }
    // Taken in turns, so that both see the same machine.
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        early.push(timed(&mut short, &store).await);
        late.push(timed(&mut long, &store).await);
    }
    let (early, late) = (median(early), median(late));
    println!("{:>16} {:>16} {:>8}", "around turn 100", "around 10,000", "ratio");
    println!("{early:>16.1?} {late:>16.1?} {:>8.2}", ratio(late, early));
}

async fn timed(conversation: &mut Conversation, store: &SqliteStore) -> Duration {
    let start = Instant::now();
    conversation.save_turn(store).await;
    start.elapsed()
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn kib(bytes: usize) -> f64 {
    bytes as f64 / 1024.0
}

/// The database and its log; the index of the log is there only while a process has the database open.
pub(crate) fn bytes_on_disk(folder: &std::path::Path) -> usize {
    let files = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|file| file.expect("a file"));
    let kept = files.filter(|file| !file.file_name().to_string_lossy().ends_with("-shm"));
    let bytes: u64 = kept.map(|file| file.metadata().expect("its size").len()).sum();
    usize::try_from(bytes).expect("it fits into memory")
}
