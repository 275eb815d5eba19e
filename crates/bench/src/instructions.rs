//! The instructions of hot paths: counted by valgrind, so the same on a busy machine, and compared with a file.
//!
//! Each path is worked in two sizes by a worker of its own on one thread. The difference in instructions, divided by the
//! difference in size, is what one more turn or chunk costs: starting and stopping cancel out.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use everturn::Result;
use everturn::prelude::{Error, Value, json};
use everturn::serde_json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::contender::{Contender, Program};
use crate::http_load::ask_times;

/// By how much a count may grow before it fails.
const TOLERANCE: f64 = 1.05;

/// Work that is done for every message, chunk or request.
struct HotPath {
    /// What is counted.
    name: &'static str,
    /// The two sizes of the work.
    sizes: (u32, u32),
    work: fn(size: u32) -> Value,
}

const HOT_PATHS: [HotPath; 6] = [
    HotPath {
        name: "a turn in memory",
        sizes: (10, 40),
        work: |turns| json!({ "work": "conversation", "store": "memory", "turns": turns, "samples": 1 }),
    },
    HotPath {
        name: "a turn on SQLite",
        sizes: (10, 30),
        work: |turns| json!({ "work": "conversation", "store": "sqlite-normal", "turns": turns, "samples": 1 }),
    },
    HotPath {
        name: "a turn with five tools and a journal on SQLite",
        sizes: (2, 8),
        work: |turns| json!({ "work": "tools", "store": "sqlite-normal", "journal": true, "turns": turns }),
    },
    HotPath {
        name: "a change of a state of 100 kB in memory",
        sizes: (1, 5),
        work: |turns| json!({ "work": "state", "store": "memory", "bytes": 100_000, "turns": turns }),
    },
    HotPath {
        name: "a chunk in the process",
        sizes: (100, 500),
        work: |chunks| json!({ "work": "stream", "chunks": chunks }),
    },
    HotPath {
        name: "a turn over HTTP",
        sizes: (10, 40),
        work: |_| json!({ "work": "serve" }),
    },
];

/// Counts the instructions of all hot paths, prints them, and compares them with a file or writes it.
///
/// # Errors
/// `FAILED_PRECONDITION` if a path takes more instructions than the file says, by more than a twentieth; the failures of
/// valgrind and of the workers.
pub(crate) fn count(baseline: &Path, write: bool, runtime: &Runtime) -> Result<()> {
    let mut counts = BTreeMap::new();
    for path in &HOT_PATHS {
        let (few, many) = path.sizes;
        let more = path
            .instructions(many, runtime)?
            .saturating_sub(path.instructions(few, runtime)?);
        counts.insert(path.name.to_owned(), more / u64::from(many - few));
    }
    if write {
        let text = serde_json::to_string_pretty(&counts).map_err(Error::foreign)?;
        return Ok(std::fs::write(baseline, text + "\n")?);
    }
    let text = std::fs::read_to_string(baseline)?;
    compare(
        &serde_json::from_str(&text).map_err(Error::foreign)?,
        &counts,
        baseline,
    )
}

fn compare(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>, file: &Path) -> Result<()> {
    let mut grown = Vec::new();
    for (name, &count) in now {
        let Some(&expected) = before.get(name) else {
            grown.push(format!("{name}: {count}, and the file has no such count"));
            continue;
        };
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let ratio = count as f64 / expected as f64;
        println!("{name}: {count} instructions, {ratio:.3} of the file's");
        if ratio > TOLERANCE {
            grown.push(format!("{name}: {count}, {ratio:.3} of the {expected} before"));
        }
    }
    if grown.is_empty() {
        return Ok(());
    }
    Err(Error::failed_precondition(format!(
        "hot paths take more instructions than {} says; find the reason, or write the file anew if it is worth them:\n{}",
        file.display(),
        grown.join("\n")
    )))
}

impl HotPath {
    /// Returns the instructions of a worker that does this work from its start to its end.
    fn instructions(&self, size: u32, runtime: &Runtime) -> Result<u64> {
        let folder = TempDir::new()?;
        let log = folder.path().join("valgrind.log");
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(format!("--log-file={}", log.display()))
            .arg(std::env::current_exe()?)
            .args(["worker", "--one-thread"])
            .stderr(Stdio::null());
        let mut worker = Contender::of(Program::Everturn, command)?;
        let mut work = (self.work)(size);
        work["folder"] = folder.path().to_string_lossy().into();
        let answer = worker.ask(&work)?.unwrap_or_default();
        if let Some(address) = answer["address"].as_str() {
            let address = address.trim_start_matches("http://").parse();
            let path = answer["path"].as_str().unwrap_or_default();
            runtime.block_on(ask_times(
                address.map_err(Error::foreign)?,
                path,
                "application/json",
                size,
            ))?;
        }
        worker.finish()?;
        let log = std::fs::read_to_string(log)?;
        let collected = log.lines().find_map(|line| line.split("Collected :").nth(1));
        collected
            .and_then(|count| count.trim().parse().ok())
            .ok_or_else(|| Error::internal(format!("valgrind did not count the instructions: {log}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_grew_by_more_than_a_twentieth_is_named() {
        let counts =
            |turn, chunk| BTreeMap::from([("a turn".to_owned(), turn), ("a chunk".to_owned(), chunk)]);
        let file = Path::new("counts.json");

        assert!(compare(&counts(1_000, 100), &counts(1_049, 90), file).is_ok());
        let error = compare(&counts(1_000, 100), &counts(1_051, 90), file).unwrap_err();

        let message = error.to_string();
        assert!(
            message.contains("a turn: 1051, 1.051 of the 1000 before"),
            "{message}"
        );
        assert!(!message.contains("a chunk"), "{message}");
    }
}
