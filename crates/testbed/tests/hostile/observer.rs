//! Measuring a server while it is attacked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::MEGABYTE;
use crate::served::Testbed;
use crate::wire::exchange;

/// How fast the server must say that it is well, whatever else it does.
const PROMPT: Duration = Duration::from_millis(250);

/// By how much all late answers of a server may be late together. A machine that has other things to do delays an answer now and
/// then; a server whose threads are blocked is late for seconds, at once or again and again.
const LATE: Duration = Duration::from_secs(3);

/// Asks a server again and again how it is and how much memory it has. An idle server is asked in between, so that the
/// delays of a busy machine are known.
pub(crate) struct Observer {
    is_over: Arc<AtomicBool>,
    watching: JoinHandle<Seen>,
    before: usize,
    _idle: Testbed,
}

/// What the samples showed.
#[derive(Default)]
struct Seen {
    resident: usize,
    latency: Latency,
    idle_latency: Latency,
    samples: usize,
}

/// How long answers took.
#[derive(Debug, Default)]
struct Latency {
    worst: Duration,
    /// By how much answers were not prompt, in all.
    late: Duration,
}

impl Latency {
    fn add(&mut self, took: Duration) {
        self.worst = self.worst.max(took);
        self.late += took.saturating_sub(PROMPT);
    }
}

impl Observer {
    pub(crate) fn of(server: &Testbed) -> Self {
        let idle = Testbed::start("memory");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let (attacked, calm, process) = (server.host().to_owned(), idle.host().to_owned(), server.id());
        let watching = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !over.load(Ordering::Relaxed) || seen.samples == 0 {
                seen.latency.add(latency(&attacked));
                seen.idle_latency.add(latency(&calm));
                seen.resident = seen.resident.max(resident_bytes(process));
                seen.samples += 1;
                // Often enough to see a short stall, seldom enough not to be an attack itself.
                std::thread::sleep(Duration::from_millis(10));
            }
            seen
        });
        Self {
            is_over,
            watching,
            before: resident_bytes(server.id()),
            _idle: idle,
        }
    }

    /// Checks that the server has grown by no more than `most` bytes at any time, and that its answers were prompt.
    ///
    /// On a busy machine answers of the idle server are late too, by no fault of either. An answer passes through two threads,
    /// and each may have been as unlucky.
    #[track_caller]
    pub(crate) fn assert_unharmed(self, what: &str, most: usize) {
        self.is_over.store(true, Ordering::Relaxed);
        let seen = self.watching.join().unwrap();
        let grown = seen.resident.saturating_sub(self.before);
        println!(
            "{what}: grown by {} of {} MB, /healthz {:?} (idle {:?}) in {} samples",
            grown / MEGABYTE,
            most / MEGABYTE,
            seen.latency,
            seen.idle_latency,
            seen.samples
        );

        assert!(
            grown <= most,
            "{what}: the server has grown by {} MB",
            grown / MEGABYTE
        );
        assert!(
            seen.latency.late < LATE + 2 * seen.idle_latency.late,
            "{what}: /healthz was late by {:?}, where an idle server was by {:?}",
            seen.latency,
            seen.idle_latency
        );
    }
}

fn latency(host: &str) -> Duration {
    let asked = Instant::now();
    let answer = exchange(
        host,
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    assert!(answer.contains(r#"{"status":"ok"}"#), "{answer}");
    asked.elapsed()
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
    // The name in parentheses may hold anything; user and system time are the 12th and 13th fields behind it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
