//! Whatever was acknowledged is there and whole after the process was killed, wherever it was.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use everturn_agent::{SessionState, Snapshot};
use everturn_ai::{Message, Part};
use everturn_sqlite::{Durability, SqliteStore};
use serde_json::json;
use support::{path, put, row, scope};

use everturn_agent::store::{Detail, SessionStore};

const FOLDER: &str = "EVERTURN_TEST_FOLDER";
const SESSION: &str = "EVERTURN_TEST_SESSION";
const KILLS: u64 = 300;

/// The row of a turn, known from its number alone.
fn turn(session: &str, state: &mut SessionState, turn: usize) -> Snapshot {
    state
        .messages
        .push(Message::user(format!("{session} asks {turn}")));
    let picture = format!("data:,{}", format!("{session}/{turn}/").repeat(2_000));
    let answer = if turn.is_multiple_of(4) {
        Part::media(picture)
    } else {
        Part::text("soup ".repeat(turn * 10))
    };
    state.messages.push(Message::model(answer));
    state.custom = Some(std::sync::Arc::new(
        json!({"turn": turn, "padding": "salt ".repeat(400)}),
    ));
    let mut row = row(
        &format!("{session}-{turn}"),
        session,
        i64::try_from(turn).unwrap(),
    );
    row.parent_id = turn
        .checked_sub(1)
        .map(|before| format!("{session}-{before}").into());
    row.state = Some(state.clone());
    row
}

/// Not a test: what the process that is killed does. Without a session it does nothing.
#[test]
fn the_process_that_is_killed() {
    let Ok(session) = std::env::var(SESSION) else {
        return;
    };
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let durability = if session.ends_with('0') {
            Durability::Full
        } else {
            Durability::Normal
        };
        let store = SqliteStore::options(path(&folder))
            .durability(durability)
            .open()
            .await
            .unwrap();
        let mut state = SessionState::default();
        for number in 0.. {
            put(&store, turn(&session, &mut state, number)).await.unwrap();
            let mut out = std::io::stdout().lock();
            writeln!(out, "\nack {number}").unwrap();
            out.flush().unwrap();
        }
    });
}

#[tokio::test]
async fn every_acknowledged_turn_survives_three_hundred_kills() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let mut acknowledged_in_all = 0;

    for kill in 0..KILLS {
        let session = format!("s{kill}");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_process_that_is_killed", "--nocapture"])
            .env(SESSION, &session)
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (wanted, delay) = (random.usize(0..4), Duration::from_micros(random.u64(0..3_000)));
        let killer = std::thread::spawn(move || {
            let acks = lines
                .map_while(Result::ok)
                .filter_map(|line| line.strip_prefix("ack ")?.parse::<usize>().ok());
            let mut acks = acks.peekable();
            let mut seen: Vec<usize> = acks.by_ref().take(wanted).collect();
            // Anywhere in what comes next.
            std::thread::sleep(delay);
            child.kill().unwrap();
            child.wait().unwrap();
            seen.extend(acks);
            seen
        });
        let acknowledged = killer.join().unwrap();
        acknowledged_in_all += acknowledged.len();

        let store = SqliteStore::open(path(folder.path())).await.unwrap();
        let mut state = SessionState::default();
        for number in acknowledged {
            let expected = turn(&session, &mut state, number);
            let found = store
                .get(&scope(), &expected.snapshot_id, Detail::Whole)
                .await
                .unwrap();
            assert_eq!(found, Some(expected), "after kill {kill}");
        }
        if kill % 30 == 29 {
            let found = store.verify().await.unwrap();
            assert!(found.is_clean(), "after kill {kill}: {:#?}", found.problems);
        }
    }

    assert!(
        acknowledged_in_all > 100,
        "only {acknowledged_in_all} turns were acknowledged"
    );
}
