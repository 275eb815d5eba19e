//! Measuring a server during an attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use everturn_testkit::blocking_real_pause;

use crate::MEGABYTE;
use crate::served::Testbed;
use crate::wire::exchange;

/// The time in which the server must answer a health check. An unoptimised one gets twice as long: it needs
/// several times as long for the same work.
const PROMPT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 250 });

/// Polls a server for its health, and resets its peak of resident memory. An idle server is polled at the same
/// time, which shows the delays of a busy machine.
pub(crate) struct Observer {
    is_over: Arc<AtomicBool>,
    attacked: JoinHandle<Vec<Answer>>,
    idle: JoinHandle<Vec<Answer>>,
    process: u32,
    before: usize,
    _idle: Testbed,
}

/// A response of `/healthz`.
#[derive(Debug)]
struct Answer {
    asked: Instant,
    took: Duration,
}

impl Answer {
    fn overlaps(&self, other: &Self) -> bool {
        self.asked <= other.asked + other.took && other.asked <= self.asked + self.took
    }

    /// Returns by how much an idle server was faster at the same time.
    fn own_time(&self, idle: &[Answer]) -> Duration {
        let meanwhile = idle.iter().filter(|idle| idle.overlaps(self));
        let delay = meanwhile.map(|idle| idle.took).max().unwrap_or_default();
        self.took.saturating_sub(delay)
    }
}

impl Observer {
    pub(crate) fn of(server: &Testbed) -> Self {
        let idle = Testbed::start("memory");
        let is_over = Arc::new(AtomicBool::new(false));
        // The kernel's command that resets the peak.
        std::fs::write(format!("/proc/{}/clear_refs", server.id()), "5").unwrap();
        Self {
            attacked: watch(server, &is_over),
            idle: watch(&idle, &is_over),
            is_over,
            process: server.id(),
            before: resident_bytes(server.id()),
            _idle: idle,
        }
    }

    /// Checks that the server has grown by no more than `most` bytes at any time, and that each answer was
    /// prompt, or as much later as an idle server answered at the same time.
    #[track_caller]
    pub(crate) fn assert_unharmed(self, what: &str, most: usize) {
        self.is_over.store(true, Ordering::Relaxed);
        let (answers, idle) = (self.attacked.join().unwrap(), self.idle.join().unwrap());
        let grown = memory(self.process, "VmHWM:").saturating_sub(self.before);
        let slowest = answers
            .iter()
            .max_by_key(|answer| answer.own_time(&idle))
            .unwrap();
        let own_time = slowest.own_time(&idle);
        println!(
            "{what}: grown by {} of {} MB, slowest /healthz of {}: {own_time:?} of {:?}",
            grown / MEGABYTE,
            most / MEGABYTE,
            answers.len(),
            slowest.took,
        );

        assert!(
            grown <= most,
            "{what}: the server has grown by {} MB",
            grown / MEGABYTE
        );
        assert!(
            own_time < PROMPT,
            "{what}: /healthz was late by its own fault: {own_time:?} of {:?}",
            slowest.took
        );
    }
}

fn watch(server: &Testbed, is_over: &Arc<AtomicBool>) -> JoinHandle<Vec<Answer>> {
    let is_over = Arc::clone(is_over);
    let host = server.host().to_owned();
    std::thread::spawn(move || {
        let mut answers = Vec::new();
        while !is_over.load(Ordering::Relaxed) || answers.is_empty() {
            answers.push(ask(&host));
            let reason = "often enough to detect a short stall, seldom enough not to be an attack itself";
            blocking_real_pause(Duration::from_millis(10), reason);
        }
        answers
    })
}

fn ask(host: &str) -> Answer {
    let asked = Instant::now();
    let answer = exchange(
        host,
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    let took = asked.elapsed();
    assert!(answer.contains(r#"{"status":"ok"}"#), "{answer}");
    Answer { asked, took }
}

pub(crate) fn resident_bytes(process: u32) -> usize {
    memory(process, "VmRSS:")
}

/// Returns a size in bytes from the status of a process; `VmHWM` is the peak of the resident memory.
fn memory(process: u32, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kilobytes: usize = line.trim().strip_suffix("kB").unwrap().trim().parse().unwrap();
    kilobytes * 1024
}

/// The CPU time of a process.
pub(crate) fn cpu_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name in parentheses may contain anything; user and system time are the 12th and 13th fields after
    // it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
