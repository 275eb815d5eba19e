//! Workers as processes, for tests that kill them.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test file uses its own part of this"
)]
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use everturn_agent::SnapshotId;
use testbed::worker::{Orders, StorePlace};

/// How long a line of a worker's may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// A worker; killed when dropped.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    pub fn start(orders: &Orders) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_worker"))
            .arg(serde_json::to_string(orders).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        // Ends with the process, whose end of the pipe is closed then.
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Waits for a line that begins like that and gives the rest of it.
    pub fn hear(&self, beginning: &str) -> String {
        loop {
            let line = self
                .lines
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|error| panic!("the worker did not say '{beginning}': {error}"));
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Waits for the next run that the worker accepts.
    pub fn accepted(&self) -> SnapshotId {
        self.hear("accepted").into()
    }

    /// Kills the process in the middle of whatever it does, and gives the runs it accepted that nobody asked about.
    pub fn kill(mut self) -> Vec<SnapshotId> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let rest: Vec<String> = self.lines.iter().collect();
        rest.iter()
            .filter_map(|line| line.strip_prefix("accepted "))
            .map(SnapshotId::from)
            .collect()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let status = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.child.id())])
            .status()
            .unwrap();
        assert!(status.success(), "the signal {name} was not sent");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with a store and a file of effects.
pub struct Site {
    folder: tempfile::TempDir,
    pub store: StorePlace,
}

impl Site {
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = StorePlace::Sqlite(folder.path().join("sessions.db"));
        Self { folder, store }
    }

    pub fn files() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = StorePlace::Files(folder.path().join("sessions"));
        Self { folder, store }
    }

    /// Orders for a worker that does nothing yet.
    pub fn orders(&self, lease: Duration) -> Orders {
        Orders {
            store: self.store.clone(),
            effects: self.folder.path().join("effects"),
            lease,
            pace: Duration::from_millis(8),
            errands: Vec::new(),
            recover_every: None,
        }
    }
}
