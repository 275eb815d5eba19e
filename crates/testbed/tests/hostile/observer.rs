//! Measuring a server during an attack.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::MEGABYTE;
use crate::served::Testbed;
use crate::wire::exchange;

/// The time in which the server must answer a health check.
const PROMPT: Duration = Duration::from_millis(250);

/// Polls a server for its health and its memory. An idle server is polled at the same time, which shows the
/// delays of a busy machine.
pub(crate) struct Observer {
    is_over: Arc<AtomicBool>,
    attacked: JoinHandle<Seen>,
    idle: JoinHandle<Seen>,
    before: usize,
    _idle: Testbed,
}

/// The results of the samples.
#[derive(Default)]
struct Seen {
    resident: usize,
    answers: Vec<Answer>,
}

/// A response of `/healthz`.
#[derive(Debug)]
struct Answer {
    asked: Instant,
    took: Duration,
    /// How long the polling thread, and the server's thread with the longest wait, were runnable without a
    /// processor.
    without_processor: Duration,
}

impl Answer {
    fn overlaps(&self, other: &Self) -> bool {
        self.asked <= other.asked + other.took && other.asked <= self.asked + self.took
    }

    /// Returns the server's own share of the time, given the response of an idle server at the same time.
    fn own_time(&self, idle: &Seen) -> Duration {
        let meanwhile = idle.answers.iter().filter(|idle| idle.overlaps(self));
        let delay = meanwhile.map(|idle| idle.took).max().unwrap_or_default();
        self.took.saturating_sub(self.without_processor + delay)
    }
}

impl Observer {
    pub(crate) fn of(server: &Testbed) -> Self {
        let idle = Testbed::start("memory");
        let is_over = Arc::new(AtomicBool::new(false));
        Self {
            attacked: watch(server, &is_over),
            idle: watch(&idle, &is_over),
            is_over,
            before: resident_bytes(server.id()),
            _idle: idle,
        }
    }

    /// Checks that the server has grown by no more than `most` bytes at any time, and that each answer was
    /// prompt.
    ///
    /// On a busy machine threads wait for a processor, and an idle server is late too. Neither is counted. A
    /// server whose threads compute or wait for each other is late on every machine.
    #[track_caller]
    pub(crate) fn assert_unharmed(self, what: &str, most: usize) {
        self.is_over.store(true, Ordering::Relaxed);
        let (seen, idle) = (self.attacked.join().unwrap(), self.idle.join().unwrap());
        let grown = seen.resident.saturating_sub(self.before);
        let slowest = seen
            .answers
            .iter()
            .max_by_key(|answer| answer.own_time(&idle))
            .unwrap();
        println!(
            "{what}: grown by {} of {} MB, slowest /healthz of {}: {:?} of {slowest:?}",
            grown / MEGABYTE,
            most / MEGABYTE,
            seen.answers.len(),
            slowest.own_time(&idle),
        );

        assert!(
            grown <= most,
            "{what}: the server has grown by {} MB",
            grown / MEGABYTE
        );
        assert!(
            slowest.own_time(&idle) < PROMPT,
            "{what}: /healthz was late by its own fault: {:?} of {slowest:?}",
            slowest.own_time(&idle)
        );
    }
}

fn watch(server: &Testbed, is_over: &Arc<AtomicBool>) -> JoinHandle<Seen> {
    let is_over = Arc::clone(is_over);
    let (host, process) = (server.host().to_owned(), server.id());
    std::thread::spawn(move || {
        let mut seen = Seen::default();
        while !is_over.load(Ordering::Relaxed) || seen.answers.is_empty() {
            seen.answers.push(ask(&host, process));
            seen.resident = seen.resident.max(resident_bytes(process));
            // Often enough to detect a short stall, seldom enough not to be an attack itself.
            std::thread::sleep(Duration::from_millis(10));
        }
        seen
    })
}

fn ask(host: &str, process: u32) -> Answer {
    let before = (waits("/proc/thread-self"), waits_of_threads(process));
    let asked = Instant::now();
    let answer = exchange(
        host,
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    let took = asked.elapsed();
    assert!(answer.contains(r#"{"status":"ok"}"#), "{answer}");
    let threads = waits_of_threads(process);
    let longest = threads.iter().map(|(thread, waited)| {
        let before = before.1.get(thread).copied().unwrap_or_default();
        waited.saturating_sub(before)
    });
    Answer {
        asked,
        took,
        without_processor: waits("/proc/thread-self").saturating_sub(before.0)
            + longest.max().unwrap_or_default(),
    }
}

/// Returns how long each thread of a process has waited for a processor.
fn waits_of_threads(process: u32) -> HashMap<String, Duration> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let threads = threads.map(|thread| thread.unwrap().path().display().to_string());
    threads.map(|thread| (thread.clone(), waits(&thread))).collect()
}

/// Returns how long a thread was runnable without a processor; zero for an ended thread.
fn waits(thread: &str) -> Duration {
    let times = std::fs::read_to_string(format!("{thread}/schedstat")).unwrap_or_default();
    let waited = times.split_whitespace().nth(1).map(str::parse);
    Duration::from_nanos(waited.map_or(0, Result::unwrap))
}

pub(crate) fn resident_bytes(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
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
