//! A tenant's usage is one number in the store, whichever process adds to it and whichever is killed.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use everturn_agent::store::{Scope, UsageLedger};
use everturn_agent::{Agent, Budget, Limits, agent};
use everturn_ai::{
    Message, ModelInfo, ModelResponse, Part, Replay, Tool, ToolRequest, Usage, define_model, reason,
};
use everturn_core::{Registry, Status};
use everturn_sqlite::{Durability, SqliteStore};
use everturn_testkit::eventually;
use serde_json::{Value, json};

const FOLDER: &str = "EVERTURN_TEST_FOLDER";
const ROLE: &str = "EVERTURN_TEST_SPENDER";

/// How many turns of one tenant run at once, in three processes.
const TURNS: usize = 64;
const PROCESSES: usize = 3;
const TOKENS_PER_CALL: u64 = 10;

/// The number of bytes in a file, each of which stands for a call.
fn count(folder: &Path, name: &str) -> u64 {
    std::fs::metadata(folder.join(name)).map_or(0, |file| file.len())
}

/// Counts a call outside of the store. A file in append mode loses no concurrent write.
fn note(folder: &Path, name: &str) {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join(name));
    file.unwrap().write_all(b".").unwrap();
}

async fn store(folder: &Path) -> SqliteStore {
    let options = SqliteStore::options(folder.join("sessions.db")).durability(Durability::Normal);
    options.busy_timeout(Duration::from_mins(1)).open().await.unwrap()
}

/// An agent whose turns go on until a limit ends them.
async fn spender(folder: &Path, budget: Budget) -> Agent {
    let registry = Registry::new();
    let outside = folder.to_owned();
    define_model(
        &registry,
        "endless",
        ModelInfo::default(),
        move |request, _, _| {
            let outside = outside.clone();
            async move {
                note(&outside, "begun");
                tokio::task::yield_now().await;
                let next = ToolRequest::new("work", json!({ "number": request.messages.len() }));
                note(&outside, "ended");
                Ok(
                    ModelResponse::new(Message::model(Part::from(next))).with_usage(Usage {
                        input_tokens: Some(TOKENS_PER_CALL),
                        ..Usage::default()
                    }),
                )
            }
        },
    )
    .unwrap();
    let work =
        Tool::new("work", "Works.", |_: Value, _| async { Ok("done") }).with_replay(Replay::Idempotent);
    let spender = agent(&registry, "spender")
        .model("endless")
        .max_rounds(10_000)
        .tool(work);
    spender
        .store(store(folder).await)
        .limits(Limits::new().per_tenant(budget))
        .define()
        .unwrap()
}

/// Runs concurrent turns, each in a separate session, until the limit has ended all of them.
async fn spend(folder: &Path, process: usize, turns: usize, budget: Budget) {
    let spender = spender(folder, budget).await;
    let turns = (0..turns).map(|turn| {
        let spender = spender.clone();
        tokio::spawn(async move {
            let session = format!("session-{process}-{turn}");
            let error = spender.chat().resume(session).run("Work.").await.unwrap_err();
            assert_eq!(error.status(), Status::ResourceExhausted, "{error}");
            let details = error.details().unwrap();
            assert_eq!(details["reason"], reason::LIMIT_REACHED.name());
            assert_eq!(details["limit"]["per"], "tenant");
        })
    });
    for turn in futures::future::join_all(turns).await {
        turn.unwrap();
    }
}

/// Not a test: what another process does. Without a role it does nothing.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let number = |value: &Value| value.as_u64().unwrap();
    let role: Value = serde_json::from_str(&role).unwrap();
    let mut budget = Budget::new();
    if let Some(tokens) = role.get("tokens") {
        budget = budget.tokens(number(tokens));
    }
    if let Some(calls) = role.get("calls") {
        budget = budget.model_calls(number(calls));
    }
    let (process, turns) = (number(&role["process"]), number(&role["turns"]));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let count = |number: u64| usize::try_from(number).unwrap();
    runtime.block_on(spend(&folder, count(process), count(turns), budget));
}

/// Runs this program again, to do nothing but spend.
fn start(folder: &Path, role: &Value) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "limits::the_other_process", "--nocapture"])
        .env(ROLE, role.to_string())
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Starts all processes, which share the turns among them.
fn start_all(folder: &Path, budget: &Value) -> Vec<Child> {
    let role = |process: usize| {
        let turns = TURNS / PROCESSES + usize::from(process < TURNS % PROCESSES);
        let mut role = budget.clone();
        role["process"] = process.into();
        role["turns"] = turns.into();
        role
    };
    (0..PROCESSES)
        .map(|process| start(folder, &role(process)))
        .collect()
}

#[tokio::test]
async fn turns_of_three_processes_overshoot_by_at_most_one_call_each() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    drop(store(folder).await);
    let calls = 150;

    for mut process in start_all(folder, &json!({ "tokens": calls * TOKENS_PER_CALL })) {
        assert!(process.wait().unwrap().success());
    }

    let made = count(folder, "ended");
    assert!(made >= calls, "{made} calls");
    assert!(
        made <= calls + TURNS as u64,
        "{made} calls where {calls} are paid for"
    );
    let spent = store(folder).await.of_tenant(&Scope::default()).await.unwrap();
    assert_eq!(spent.model_calls, made);
    assert_eq!(spent.tokens(), made * TOKENS_PER_CALL);
}

#[tokio::test]
async fn killed_processes_leave_the_right_count_and_the_rest_of_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    drop(store(folder).await);
    let calls = 400;
    let mut processes = start_all(folder, &json!({ "calls": calls }));
    for (process, killed_at) in processes.iter_mut().zip([30, 70, 110]) {
        // By what has happened, not by the clock.
        eventually("enough calls have begun", async || {
            let is_over = process.try_wait().unwrap().is_some();
            assert!(!is_over, "a process has ended too early");
            count(folder, "begun") >= killed_at
        })
        .await;
        process.kill().unwrap();
        process.wait().unwrap();
    }

    let spent = store(folder).await.of_tenant(&Scope::default()).await.unwrap();
    let (begun, ended) = (count(folder, "begun"), count(folder, "ended"));
    let under_way = TURNS as u64;
    // A call is counted before it is made, so a killed turn may have counted a call that it did not make, but
    // never the reverse. Its tokens are counted when it ends.
    assert!(
        spent.model_calls >= begun,
        "{begun} calls, {} counted",
        spent.model_calls
    );
    assert!(spent.model_calls <= begun + under_way);
    assert!(spent.tokens() <= ended * TOKENS_PER_CALL);
    assert!(spent.tokens() + under_way * TOKENS_PER_CALL >= ended * TOKENS_PER_CALL);

    let left = calls - spent.model_calls;
    for mut process in start_all(folder, &json!({ "calls": calls })) {
        assert!(process.wait().unwrap().success());
    }

    // Exactly the rest of the budget: a call is admitted and counted in one step.
    assert_eq!(count(folder, "begun"), begun + left);
    let spent = store(folder).await.of_tenant(&Scope::default()).await.unwrap();
    assert_eq!(spent.model_calls, calls);
}
