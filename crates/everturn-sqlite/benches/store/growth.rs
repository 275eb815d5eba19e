//! Bytes per text, and whether a long conversation is slower than a short one.

use everturn_sqlite::{Durability, SqliteStore};

use crate::conversation::{Conversation, TURN, compare_pace, kib};

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
    compare_pace(&store).await;
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
