//! Memory stays what it was told to be, however many conversations there are.
//!
//! Each test measures a process of its own: this program, started again. `EVERTURN_SOAK=full` runs 200,000 turns over
//! 20,000 sessions and a cache of 64 MiB; without it the numbers are small enough for every run of the tests.
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]
#![cfg(target_os = "linux")]

use std::process::Command;

use everturn_agent::store::{Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{Agent, AgentSession, SessionState, Snapshot, custom_agent};
use everturn_ai::{FinishReason, Message, Part};
use everturn_core::Registry;
use everturn_sqlite::{Durability, SqliteStore};
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::json;

/// Tells a process that it is the one to measure.
const MEASURED: &str = "EVERTURN_SOAK_MEASURED";

const MIB: usize = 1024 * 1024;

/// What a process takes for SQLite's own caches, its threads and the leftovers of its allocator.
const OTHERS: usize = 20 * MIB;

fn is_full() -> bool {
    std::env::var("EVERTURN_SOAK").is_ok_and(|soak| soak == "full")
}

/// Whether this process is the one to measure; otherwise starts that one and waits for it.
fn is_measured(test: &str) -> bool {
    if std::env::var(MEASURED).is_ok() {
        return true;
    }
    let measured = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MEASURED, "yes")
        // One arena, so that what threads leave behind is not taken for what is held.
        .env("MALLOC_ARENA_MAX", "1")
        .status()
        .unwrap();
    assert!(measured.success(), "the measured process failed");
    false
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

/// A conversation whose text is a small part of the memory that it holds.
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

#[test]
fn a_full_cache_takes_at_most_half_again_of_its_bytes() {
    if !is_measured("a_full_cache_takes_at_most_half_again_of_its_bytes") {
        return;
    }
    let cache = if is_full() { 64 * MIB } else { 24 * MIB };
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
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

        // Twice as many as fit, each of which holds about 10 KiB.
        let sessions = 200 + 2 * cache / (10 * 1024);
        for session in (200..sessions).step_by(100) {
            join_all((session..session + 100).map(&save)).await;
        }

        let grown = resident().saturating_sub(before);
        assert!(
            grown < cache * 3 / 2 + OTHERS,
            "{cache} bytes of cache became {grown} bytes of memory"
        );
        assert!(
            grown > cache / 4,
            "only {grown} bytes were measured: the cache was not filled"
        );
    });
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

#[test]
fn a_long_soak_has_a_flat_end() {
    if !is_measured("a_long_soak_has_a_flat_end") {
        return;
    }
    let (turns, sessions, cache) = if is_full() {
        (200_000, 20_000, 64 * MIB)
    } else {
        (6_000, 600, 2 * MIB)
    };
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let agent = scribe(open(folder.path(), cache).await);
        let mut measured = Vec::new();
        for turn in (0..turns).step_by(50) {
            // Every session has its turn before any has its next.
            let asked = (turn..turn + 50).map(|turn| {
                let chat = agent.chat().resume(format!("session-{}", turn % sessions));
                async move {
                    chat.run("What next?").await.unwrap();
                }
            });
            join_all(asked).await;
            measured.push(resident());
        }

        // What a session holds grows with its turns; what the process holds does not.
        let (middle, end) = (measured[measured.len() / 2], *measured.last().unwrap());
        assert!(
            end < middle + middle / 10 + 6 * MIB,
            "{middle} bytes in the middle became {end} at the end"
        );
    });
}
