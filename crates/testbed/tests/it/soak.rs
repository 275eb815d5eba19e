//! Memory stays within its configured bounds, for any number of conversations.
//!
//! Each test measures separate processes: this program, started again. `EVERTURN_SOAK=full` runs 200,000
//! turns over 20,000 sessions and a cache of 64 MiB; the default numbers are small enough for every test run:
//!
//! ```text
//! EVERTURN_SOAK=full cargo test --release -p testbed --test it soak -- --nocapture
//! ```
#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::Instant;

use everturn_agent::store::{Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{Agent, AgentSession, SessionState, Snapshot, custom_agent};
use everturn_ai::{FinishReason, Message, Part};
use everturn_core::Registry;
use everturn_sqlite::{Durability, SqliteStore};
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::json;

/// Marks a process as the one to measure.
const MEASURED: &str = "EVERTURN_SOAK_MEASURED";

/// Begins the line with the measured number.
const REPORT: &str = "measured: ";

const MIB: usize = 1024 * 1024;

fn is_full() -> bool {
    std::env::var("EVERTURN_SOAK").is_ok_and(|soak| soak == "full")
}

/// The setting of the measured process, if this is one.
fn measured() -> Option<usize> {
    let setting = std::env::var(MEASURED).ok()?;
    Some(setting.parse().unwrap())
}

/// Runs a test of this file in a separate process and returns the number that it [reports](report).
fn measure(test: &str, setting: usize) -> usize {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("soak::{test}"), "--nocapture"])
        .env(MEASURED, setting.to_string())
        // One arena, so that leftovers of threads do not count as used memory.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let (said, errors) = (String::from_utf8(output.stdout).unwrap(), output.stderr);
    for line in said.lines().filter(|line| line.contains(" turns over ")) {
        println!("{line}");
    }
    let number = said.lines().find_map(|line| line.split(REPORT).nth(1));
    let number = number.unwrap_or_else(|| panic!("{said}\n{}", String::from_utf8_lossy(&errors)));
    number.trim().parse().unwrap()
}

/// Prints the measured number.
fn report(number: usize) {
    println!("\n{REPORT}{number}");
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kilobytes = line.trim().trim_end_matches("kB").trim();
    kilobytes.parse::<usize>().unwrap() * 1024
}

async fn open(folder: &std::path::Path, cache: usize) -> SqliteStore {
    SqliteStore::options(folder.join("sessions.db"))
        .durability(Durability::Normal)
        .cache_bytes(cache)
        .open()
        .await
        .unwrap()
}

/// A conversation whose text is a small part of its memory.
fn small_parts(session: usize) -> Snapshot {
    let id = format!("snapshot-{session}");
    let mut row = Snapshot::new(
        id.as_str().into(),
        format!("session-{session}").into(),
        Timestamp::now(),
    );
    let messages = (0..6).map(|number| {
        Message::model(vec![
            Part::text(format!("{number}")),
            Part::data(json!({"a": session, "b": [number, {"c": true}]})),
        ])
    });
    row.state = Some(SessionState {
        messages: messages.collect(),
        ..SessionState::default()
    });
    row
}

/// Fills the cache of a store with conversations and returns by how much the process has grown.
async fn fill(cache: usize) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), cache).await;
    let save = async |session| {
        let row = small_parts(session);
        let id = row.snapshot_id.clone();
        let put = Mutation::new(move |_| Ok(Some(row.clone())));
        store
            .save(&Scope::default(), Some(&id), Precondition::None, put)
            .await
            .unwrap();
    };
    join_all((0..200).map(&save)).await;
    let before = resident();

    // Twice as many as fit, each of about 10 KiB.
    let sessions = 200 + 2 * cache / (10 * 1024);
    for session in (200..sessions).step_by(100) {
        join_all((session..session + 100).map(&save)).await;
    }
    resident().saturating_sub(before)
}

#[test]
fn a_full_cache_uses_at_most_one_and_a_half_times_its_limit() {
    let test = "a_full_cache_uses_at_most_one_and_a_half_times_its_limit";
    if let Some(cache) = measured() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        report(runtime.block_on(fill(cache)));
        return;
    }
    let (small, large) = if is_full() {
        (8 * MIB, 72 * MIB)
    } else {
        (4 * MIB, 20 * MIB)
    };

    // The difference excludes other memory: SQLite's caches, threads, leftovers of the allocator.
    let taken = measure(test, large).saturating_sub(measure(test, small));

    let told = large - small;
    println!("{told} bytes of cache took {taken} bytes of memory");
    assert!(
        taken <= told * 3 / 2,
        "{told} bytes of cache became {taken} bytes of memory"
    );
    assert!(
        taken > told / 4,
        "only {taken} bytes were measured: the cache was not filled"
    );
}

fn scribe(store: SqliteStore) -> Agent {
    let converse = |session: AgentSession| async move {
        let turns = session.run(|turn| async move {
            let count = turn.messages().len();
            turn.add_message(Message::model(format!("message {count} was heard")));
            Ok(FinishReason::Stop)
        });
        turns.await?;
        Ok(session.result())
    };
    custom_agent(&Registry::new(), "scribe", converse)
        .store(store)
        .define()
        .unwrap()
}

/// Runs turns round-robin over the sessions, and reports the process's memory at the end in per mille of the
/// memory at half time.
async fn soak(turns: usize, sessions: usize, cache: usize) {
    let folder = tempfile::tempdir().unwrap();
    let agent = scribe(open(folder.path(), cache).await);
    let begin = Instant::now();
    let mut measured = Vec::new();
    for turn in (0..turns).step_by(50) {
        let asked = (turn..turn + 50).map(|turn| {
            let chat = agent.chat().resume(format!("session-{}", turn % sessions));
            async move {
                chat.run("What next?").await.unwrap();
            }
        });
        join_all(asked).await;
        measured.push(resident());
    }
    let at = |part: usize| measured[(measured.len() - 1) * part / 10] / MIB;
    println!(
        "{turns} turns over {sessions} sessions in {:?}: {:?} MiB at each tenth",
        begin.elapsed(),
        (0..=10).map(at).collect::<Vec<_>>()
    );
    report(measured.last().unwrap() * 1000 / measured[measured.len() / 2]);
}

#[test]
fn a_long_soak_has_a_flat_end() {
    let test = "a_long_soak_has_a_flat_end";
    let (turns, sessions, cache) = if is_full() {
        (200_000, 20_000, 64 * MIB)
    } else {
        (6_000, 600, 2 * MIB)
    };
    if measured().is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(soak(turns, sessions, cache));
        return;
    }

    let per_mille = measure(test, cache);

    // A session grows with its turns; the process's memory does not.
    assert!(
        per_mille <= 1_100,
        "the memory at the end is {per_mille} per mille of that in the middle"
    );
}
