//! Other processes that work on a store: the test's own program, started again.
//!
//! A worker runs only the test that started it, which reads its [`Role`] from the environment. It receives
//! commands on its standard input and writes reports to its standard output, as lines of JSON.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const VARIABLE: &str = "EVERTURN_CERTIFY_WORKER";

/// Marks the kit's lines among those of the test runner.
const MARK: &str = "everturn-certify ";

/// The role of a worker process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    /// Executes commands.
    Obey,
    /// Saves the turns of a session until it is killed.
    Talk { folder: PathBuf, session: String },
}

impl Role {
    /// Returns this process's role; `None` in a process that the kit did not start.
    pub(super) fn own() -> Option<Self> {
        let role = std::env::var(VARIABLE).ok()?;
        Some(serde_json::from_str(&role).expect("only the kit sets this variable"))
    }
}

/// A process with a role. Dropping this kills it.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    reports: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts this program again to run one test in a role.
    pub(super) fn start(test: &str, role: &Role) -> Result<Self, String> {
        let started = || {
            let mut command = Command::new(std::env::current_exe()?);
            command
                .args(["--exact", test, "--include-ignored", "--nocapture"])
                .env(VARIABLE, serde_json::to_string(role)?)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true);
            command.spawn()
        };
        let mut child = started().map_err(|error| format!("a worker cannot be started: {error}"))?;
        let (orders, reports) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        Ok(Self {
            child,
            orders,
            reports: BufReader::new(reports).lines(),
        })
    }

    /// Sends the worker a command.
    pub(super) async fn order(&mut self, order: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_string(order).map_err(|error| error.to_string())?;
        line.push('\n');
        let orders = self.orders.as_mut().expect("it is piped");
        let sent = orders.write_all(line.as_bytes()).await;
        sent.map_err(|error| format!("sending a command to a worker failed: {error}"))
    }

    /// Returns the worker's next report; `None` when it has ended.
    pub(super) async fn next_report<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        while let Some(line) = self
            .reports
            .next_line()
            .await
            .map_err(|error| error.to_string())?
        {
            if let Some(report) = line.strip_prefix(MARK) {
                // A killed process may leave an incomplete line.
                return Ok(serde_json::from_str(report).ok());
            }
        }
        Ok(None)
    }

    /// Kills the worker.
    pub(super) async fn kill(&mut self) -> Result<(), String> {
        self.child.kill().await.map_err(|error| error.to_string())
    }
}

/// In a worker: returns the next command, or `None` after the last.
pub(super) async fn next_order<T: DeserializeOwned>() -> Option<T> {
    let read = || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    };
    let line = tokio::task::spawn_blocking(read).await.ok()?.ok()?;
    serde_json::from_str(&line).ok()
}

/// In a worker: writes a report.
pub(super) fn report(report: &impl Serialize) {
    let line = serde_json::to_string(report).expect("reports are plain data");
    let mut out = std::io::stdout().lock();
    // The test runner may have begun a line. If the parent has exited, the write fails, and this process
    // ends.
    let _ = writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush());
}
