//! Contenders: programs that do the work, and their stores.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use everturn::Result;
use everturn::prelude::{Error, Value};
use everturn::serde_json;

use crate::worker::bytes_in;

/// The timeout of one piece of work.
const PATIENCE: Duration = Duration::from_mins(15);

/// The installed peers.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) npm: Option<PathBuf>,
    pub(crate) python: Option<PathBuf>,
    pub(crate) go: Option<PathBuf>,
    pub(crate) postgres: Option<String>,
}

/// A program that does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Everturn,
    GenkitJs,
    GenkitPython,
    GenkitGo,
    LangGraph,
    OpenAiAgents,
}

impl Program {
    pub(crate) const ALL: [Self; 6] = [
        Self::Everturn,
        Self::GenkitJs,
        Self::GenkitPython,
        Self::GenkitGo,
        Self::LangGraph,
        Self::OpenAiAgents,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Everturn => "Everturn",
            Self::GenkitJs => "Genkit JavaScript",
            Self::GenkitPython => "Genkit Python",
            Self::GenkitGo => "Genkit Go",
            Self::LangGraph => "LangGraph",
            Self::OpenAiAgents => "OpenAI Agents SDK",
        }
    }

    /// Returns the command that starts the program, if it is installed.
    fn command(self, peers: &Peers) -> Result<Option<Command>> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let python = |script: &str| {
            peers.python.as_ref().map(|python| {
                let mut command = Command::new(python);
                command.arg(scripts.join(script));
                command
            })
        };
        Ok(match self {
            Self::Everturn => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("worker");
                Some(command)
            }
            Self::GenkitJs => peers.npm.as_ref().map(|packages| {
                let mut command = Command::new("node");
                command.arg(scripts.join("genkit.mjs")).arg(packages);
                command
            }),
            Self::GenkitPython => python("genkit_python.py"),
            Self::GenkitGo => peers.go.as_ref().map(Command::new),
            Self::LangGraph => python("langgraph_worker.py"),
            Self::OpenAiAgents => python("openai_agents.py"),
        })
    }

    /// Returns the size of the program with its libraries; `None` if it is not installed or the size is
    /// unknown.
    ///
    /// # Errors
    /// `INTERNAL` if this program's own file is not found.
    pub(crate) fn megabytes(self, peers: &Peers) -> Result<Option<f64>> {
        let bytes = match self {
            Self::Everturn => Some(std::fs::metadata(std::env::current_exe()?)?.len()),
            Self::GenkitGo => match &peers.go {
                Some(program) => Some(std::fs::metadata(program)?.len()),
                None => None,
            },
            Self::GenkitJs => peers.npm.as_deref().map(bytes_in),
            Self::GenkitPython | Self::LangGraph | Self::OpenAiAgents => None,
        };
        #[expect(clippy::cast_precision_loss, reason = "a size for people")]
        Ok(bytes.map(|bytes| bytes as f64 / 1e6))
    }

    /// Starts the program; `None` if it is not installed.
    ///
    /// # Errors
    /// `INTERNAL` if it does not start.
    pub(crate) fn start(self, peers: &Peers) -> Result<Option<Contender>> {
        let Some(command) = self.command(peers)? else {
            return Ok(None);
        };
        Contender::of(self, command).map(Some)
    }
}

/// A running program; killed when dropped.
#[derive(Debug)]
pub(crate) struct Contender {
    program: Program,
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Contender {
    /// Starts a program by its command.
    ///
    /// # Errors
    /// `INTERNAL` if it does not start.
    pub(crate) fn of(program: Program, mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Error::internal(format!("{} did not start: {error}", program.name())))?;
        let input = child.stdin.take();
        let (sender, answers) = channel();
        let output = child.stdout.take();
        // This thread ends with the process, which closes its output.
        std::thread::spawn(move || {
            let lines = output
                .into_iter()
                .flat_map(|output| BufReader::new(output).lines());
            for line in lines.map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            program,
            child,
            input,
            answers,
        })
    }

    /// Does a piece of work; `None` if the program does not support it.
    ///
    /// # Errors
    /// `INTERNAL` if the program ended or failed, `DEADLINE_EXCEEDED` after the timeout.
    pub(crate) fn ask(&mut self, work: &Value) -> Result<Option<Value>> {
        let name = self.program.name();
        let input = self
            .input
            .as_mut()
            .expect("a contender has its input until it is dropped");
        writeln!(input, "{work}")?;
        input.flush()?;
        let line = self.answers.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => Error::deadline_exceeded(format!("{name} did not answer {work}")),
            RecvTimeoutError::Disconnected => {
                Error::internal(format!("{name} ended before it answered {work}"))
            }
        })?;
        let answer: Value = serde_json::from_str(&line).map_err(Error::foreign)?;
        if let Some(error) = answer["error"].as_str() {
            return Err(Error::internal(format!("{name} failed at {work}: {error}")));
        }
        Ok(answer.get("unsupported").is_none().then_some(answer))
    }

    pub(crate) fn version(&mut self) -> Result<String> {
        let answer = self.ask(&everturn::prelude::json!({ "work": "version" }))?;
        let version = answer.as_ref().and_then(|answer| answer["version"].as_str());
        Ok(version.unwrap_or(self.program.name()).to_owned())
    }

    /// Returns the resident memory of the process, in bytes.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kilobytes * 1024)
    }

    /// Returns the processor time of the process so far, in seconds.
    pub(crate) fn processor_seconds(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The name in parentheses may contain spaces; times are the 12th and 13th fields after it.
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
        // Linux reports a hundred ticks per second for every program.
        Some(ticks / 100.0)
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
