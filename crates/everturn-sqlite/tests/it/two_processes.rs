//! Two processes may have one database open: no update is lost and status changes travel.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everturn_agent::SnapshotStatus::{Completed, Pending};
use everturn_agent::store::{Mutation, Precondition, SessionStore};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::support::{Fixture, get, open, put, row, scope, with_status};

const FOLDER: &str = "EVERTURN_TEST_FOLDER";
const ROLE: &str = "EVERTURN_TEST_ROLE";
const INCREMENTS: usize = 150;

/// Runs this program again, to do nothing but the part named by `role`.
fn spawn(role: &str, folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "two_processes::the_other_process", "--nocapture"]);
    command
        .env(ROLE, role)
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Not a test: what the other process does. Without a role it does nothing.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = open(&folder).await;
        match role.as_str() {
            "increment" => increments(&store).await,
            "complete" => {
                for line in std::io::stdin().lines() {
                    let id = line.unwrap();
                    put(&store, with_status(row(&id, "s", 1), Completed))
                        .await
                        .unwrap();
                    println!("done {}", now().as_nanos());
                }
            }
            other => panic!("no such role: {other}"),
        }
    });
}

fn increment() -> Mutation {
    Mutation::new(|existing| {
        let mut row = existing.cloned().unwrap_or_else(|| row("counter", "s", 1));
        row.status = Pending;
        let count = row.extra.get("count").and_then(Value::as_u64).unwrap_or(0);
        row.extra.insert("count".to_owned(), json!(count + 1));
        Ok(Some(row))
    })
}

async fn increments(store: &everturn_sqlite::SqliteStore) {
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..INCREMENTS / 8 {
                    store
                        .save(&scope(), Some(&"counter".into()), Precondition::None, increment())
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_of_two_processes_is_lost() {
    let fixture = Fixture::new().await;

    let mut other = spawn("increment", fixture.folder.path());
    increments(&fixture.store).await;
    assert!(
        tokio::task::spawn_blocking(move || other.wait().unwrap().success())
            .await
            .unwrap()
    );

    let count = &get(&fixture.store, "counter").await.unwrap().extra["count"];
    assert_eq!(count, &json!(2 * 8 * (INCREMENTS / 8)));
    assert!(fixture.store.verify().await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_change_reaches_the_other_process_within_a_tenth_of_a_second() {
    let fixture = Fixture::new().await;
    let mut other = spawn("complete", fixture.folder.path());
    let mut commands = other.stdin.take().unwrap();
    let mut answers = BufReader::new(other.stdout.take().unwrap()).lines();

    let mut delays = Vec::new();
    for round in 0..9 {
        let id = format!("row-{round}");
        put(&fixture.store, with_status(row(&id, "s", 1), Pending))
            .await
            .unwrap();
        let mut statuses = fixture.store.watch(&scope(), &id.as_str().into()).unwrap();
        assert_eq!(statuses.next().await, Some(Pending));

        writeln!(commands, "{id}").unwrap();
        assert_eq!(statuses.next().await, Some(Completed));

        let heard = now();
        let answer = answers
            .find_map(|line| line.unwrap().strip_prefix("done ").map(str::to_owned))
            .unwrap();
        let done = Duration::from_nanos(answer.parse().unwrap());
        delays.push(heard.saturating_sub(done));
    }
    drop(commands);
    other.wait().unwrap();

    // The median, because a busy machine may hold up any single round.
    delays.sort();
    assert!(delays[4] < Duration::from_millis(100), "{delays:?}");
}
