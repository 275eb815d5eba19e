//! Workers as processes, for tests that kill them.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test file uses its own part of this"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use everturn_agent::{AgentFinishReason, Interrupt, Snapshot, SnapshotId, SnapshotStatus};
use everturn_ai::Message;
use everturn_testkit::blocking_real_pause;
use jiff::Timestamp;
use serde_json::Value;
use testbed::worker::{Effect, Orders, STEPS, StorePlace};

/// The timeout of a worker's line on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

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
        // Ends with the process, which closes its end of the pipe.
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Waits for a line with this prefix and returns its rest.
    pub fn expect_line(&self, beginning: &str) -> String {
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

    /// Writes a line to the worker's input.
    pub fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    /// Waits for the next run that the worker accepts.
    pub fn accepted(&self) -> SnapshotId {
        self.expect_line("accepted").into()
    }

    /// Kills the process at any point, and returns its accepted runs that were not read yet.
    pub fn kill(mut self) -> Vec<SnapshotId> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let rest: Vec<String> = self.lines.iter().collect();
        rest.iter()
            .filter_map(|line| line.strip_prefix("accepted "))
            .map(SnapshotId::from)
            .collect()
    }

    /// Kills the process after a delay. Returns its accepted runs that were not read yet, and the time of the
    /// kill.
    pub fn kill_after(self, delay: Duration) -> (Vec<SnapshotId>, Timestamp) {
        blocking_real_pause(delay, "a kill may fall anywhere into the work");
        let at = Timestamp::now();
        (self.kill(), at)
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the worker a line, and waits until it has ended.
    pub fn let_go(mut self) {
        writeln!(self.child.stdin.take().unwrap()).unwrap();
        assert!(self.child.wait().unwrap().success(), "the worker failed");
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
        // The process may have ended.
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

    /// A separate schema in the database that `./test` starts; `None`, with a printed reason, without one.
    pub fn postgres() -> Option<Self> {
        let Ok(url) = std::env::var("EVERTURN_TEST_POSTGRES") else {
            println!("skipped: EVERTURN_TEST_POSTGRES names no server; ./test starts one");
            return None;
        };
        let schema = format!("site_{:016x}", fastrand::u64(..));
        let store = StorePlace::Postgres { url, schema };
        let folder = tempfile::tempdir().unwrap();
        Some(Self { folder, store })
    }

    pub fn files() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = StorePlace::Files(folder.path().join("sessions"));
        Self { folder, store }
    }

    /// Orders for an idle worker.
    pub fn orders(&self, lease: Duration) -> Orders {
        Orders {
            store: self.store.clone(),
            effects: self.folder.path().join("effects"),
            lease,
            pace: Duration::from_millis(8),
            tasks: Vec::new(),
            recover_every: None,
            holds: false,
            branches: false,
            talks: false,
            approves: false,
            spends: None,
        }
    }
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Every step was done.
    Done,
    /// The outcome of this step is unknown: its worker died during it.
    Unknown(usize),
}

impl End {
    /// The status of a finished task in its row.
    pub fn of(row: &Snapshot) -> Self {
        assert_eq!(row.status, SnapshotStatus::Completed, "{:?}", row.error);
        assert!(row.bookkeeping.is_empty() && row.heartbeat_at.is_none());
        if row.finish_reason != Some(AgentFinishReason::Interrupted) {
            assert_eq!(row.finish_reason, Some(AgentFinishReason::Stop));
            return Self::Done;
        }
        let messages = &row.state.as_ref().unwrap().messages;
        let asked = messages.iter().flat_map(Message::content).find_map(Interrupt::of);
        let question = asked.expect("an interrupted turn asks something");
        assert!(question.is_outcome_unknown(), "{question:?}");
        let input: Value = question.input().unwrap();
        Self::Unknown(usize::try_from(input["step"].as_u64().unwrap()).unwrap())
    }
}

/// The effects of one session, in order.
#[derive(Debug, Default)]
pub struct Trace(Vec<String>);

impl Trace {
    /// Returns the effects of a session.
    pub fn of(effects: &[Effect], session: &str) -> Self {
        let done = effects.iter().filter(|effect| effect.session == session);
        Self(done.map(|effect| effect.what.clone()).collect())
    }

    pub fn add(&mut self, what: String) {
        self.0.push(what);
    }

    /// Returns how often an effect happened.
    pub fn count(&self, what: &str) -> usize {
        self.0.iter().filter(|done| *done == what).count()
    }

    /// Checks that no call was repeated that must not be, and that no used reply was requested again.
    pub fn assert_nothing_is_repeated(&self) {
        for step in 0..STEPS {
            let (tool, model) = (format!("tool {step}"), format!("model {step}"));
            assert!(self.count(&tool) <= 1, "'{tool}' was called again: {self:?}");
            let used = self.0.iter().position(|done| *done == tool);
            let asked = self.0.iter().rposition(|done| *done == model);
            assert!(
                used.is_none() || asked < used,
                "'{model}' was asked after its reply was used: {self:?}"
            );
        }
    }

    /// Checks that exactly the steps up to the end were done.
    pub fn assert_leads_to(&self, end: End) {
        for step in 0..STEPS {
            let count = self.count(&format!("tool {step}"));
            let is_right = match end {
                End::Unknown(unknown) if step == unknown => count <= 1,
                End::Unknown(unknown) if step > unknown => count == 0,
                _ => count == 1,
            };
            assert!(
                is_right,
                "step {step} was done {count} times before {end:?}: {self:?}"
            );
        }
    }
}
