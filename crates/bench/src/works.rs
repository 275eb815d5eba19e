//! The pieces of work that are compared, and the order in which they are measured.

use std::net::SocketAddr;
use std::time::Instant;

use everturn::Result;
use everturn::prelude::{Error, Value, json};
use tempfile::TempDir;

use crate::contender::{Contender, Peers, Program};
use crate::http_load::load;
use crate::table::{Better, Measured, Row, Table};

/// A program with one of its stores.
#[derive(Debug, Clone, Copy)]
struct Entry {
    program: Program,
    store: &'static str,
    label: &'static str,
    class: &'static str,
    /// The longest conversation that the contender takes part in: some slow down with every turn.
    most_turns: usize,
}

const fn entry(
    program: Program,
    store: &'static str,
    label: &'static str,
    class: &'static str,
    most_turns: usize,
) -> Entry {
    Entry {
        program,
        store,
        label,
        class,
        most_turns,
    }
}

const MEMORY: &str = "memory";
const DURABLE: &str = "durable";
const FILES: &str = "files";
const POSTGRES: &str = "postgres";

/// Who takes part. This project's first row of a class is what the others of the class are compared with.
const ENTRIES: [Entry; 16] = [
    entry(
        Program::Everturn,
        "memory",
        "Everturn, memory",
        MEMORY,
        usize::MAX,
    ),
    entry(
        Program::GenkitJs,
        "memory",
        "Genkit JavaScript, memory",
        MEMORY,
        400,
    ),
    entry(
        Program::GenkitPython,
        "memory",
        "Genkit Python, memory",
        MEMORY,
        400,
    ),
    entry(Program::GenkitGo, "memory", "Genkit Go, memory", MEMORY, 400),
    entry(Program::LangGraph, "memory", "LangGraph, memory", MEMORY, 400),
    entry(
        Program::Everturn,
        "sqlite",
        "Everturn, SQLite `Full`",
        DURABLE,
        usize::MAX,
    ),
    entry(
        Program::Everturn,
        "sqlite-normal",
        "Everturn, SQLite `Normal`",
        DURABLE,
        usize::MAX,
    ),
    entry(Program::LangGraph, "sqlite", "LangGraph, SQLite", DURABLE, 400),
    entry(
        Program::OpenAiAgents,
        "sqlite",
        "OpenAI Agents SDK, `SQLiteSession`",
        DURABLE,
        400,
    ),
    entry(
        Program::Everturn,
        "floor-full",
        "bare SQLite, `FULL`",
        DURABLE,
        usize::MAX,
    ),
    entry(
        Program::Everturn,
        "floor-normal",
        "bare SQLite, `NORMAL`",
        DURABLE,
        usize::MAX,
    ),
    entry(Program::Everturn, "file", "Everturn, files", FILES, 400),
    entry(Program::GenkitJs, "file", "Genkit JavaScript, files", FILES, 400),
    entry(Program::GenkitPython, "file", "Genkit Python, files", FILES, 400),
    entry(
        Program::Everturn,
        "postgres",
        "Everturn, PostgreSQL",
        POSTGRES,
        usize::MAX,
    ),
    entry(
        Program::LangGraph,
        "postgres",
        "LangGraph, PostgreSQL",
        POSTGRES,
        400,
    ),
];

impl Entry {
    fn is_floor(&self) -> bool {
        self.store.starts_with("floor")
    }

    fn is_durable(&self) -> bool {
        self.class != MEMORY
    }
}

/// A table that can be asked for by its name.
struct Plan {
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    better: Better,
    /// The member of the answer that is shown.
    value: &'static str,
    takes_part: fn(&Entry) -> bool,
    /// The heads of the columns and the work of each, whole and in quick runs.
    columns: fn(quick: bool) -> Vec<(String, Value)>,
}

const CONVERSATION: [usize; 5] = [10, 100, 400, 2_000, 10_000];

fn conversation(quick: bool) -> Vec<(String, Value)> {
    let sizes = if quick { &[10, 20][..] } else { &CONVERSATION[..] };
    let column = |turns: &usize| {
        let work = json!({ "work": "conversation", "turns": turns, "samples": 10.min(turns / 2) });
        (format!("turn {turns}"), work)
    };
    sizes.iter().map(column).collect()
}

/// The tables that are one question each.
const PLANS: [Plan; 9] = [
    Plan {
        name: "conversation",
        title: "One conversation, one turn per invocation",
        unit: "µs per turn",
        better: Better::Less,
        value: "micros",
        takes_part: |_| true,
        columns: conversation,
    },
    Plan {
        name: "disk",
        title: "Bytes on disk for each byte that was said",
        unit: "bytes per byte",
        better: Better::Less,
        value: "bytes",
        takes_part: |entry| entry.is_durable() && entry.class != POSTGRES,
        columns: |quick| {
            let turns = if quick { 10 } else { 400 };
            let work = json!({ "work": "conversation", "turns": turns, "samples": 1, "said": turns * 2_000 });
            vec![(format!("after {turns} turns"), work)]
        },
    },
    Plan {
        name: "sessions",
        title: "64 conversations at once",
        unit: "turns per second",
        better: Better::More,
        value: "perSecond",
        takes_part: |entry| entry.is_durable(),
        columns: |quick| {
            let (sessions, turns) = if quick { (4, 2) } else { (64, 20) };
            let work = json!({ "work": "sessions", "sessions": sessions, "turns": turns });
            vec![(format!("{sessions} sessions"), work)]
        },
    },
    Plan {
        name: "latency",
        title: "64 conversations at once, the slowest turn of a hundred",
        unit: "µs",
        better: Better::Less,
        value: "p99",
        takes_part: |entry| entry.is_durable() && !entry.is_floor(),
        columns: |quick| {
            let (sessions, turns) = if quick { (4, 2) } else { (64, 20) };
            let work = json!({ "work": "sessions", "sessions": sessions, "turns": turns });
            vec![("p99".to_owned(), work)]
        },
    },
    Plan {
        name: "stream",
        title: "An answer in many chunks, in process",
        unit: "chunks per second",
        better: Better::More,
        value: "perSecond",
        takes_part: |entry| entry.class == MEMORY,
        columns: |_| {
            vec![(
                "1,000 chunks".to_owned(),
                json!({ "work": "stream", "chunks": 1_000 }),
            )]
        },
    },
    Plan {
        name: "fork",
        title: "A branch from the middle of 400 turns, with its first turn",
        unit: "µs",
        better: Better::Less,
        value: "micros",
        takes_part: |entry| !entry.is_floor(),
        columns: |quick| {
            let turns = if quick { 4 } else { 400 };
            vec![(
                format!("{turns} turns"),
                json!({ "work": "fork", "turns": turns }),
            )]
        },
    },
    Plan {
        name: "state",
        title: "A small change of a custom state of 1 MB",
        unit: "µs per turn",
        better: Better::Less,
        value: "micros",
        takes_part: |entry| !entry.is_floor(),
        columns: |quick| {
            let (bytes, turns) = if quick { (10_000, 2) } else { (1_000_000, 10) };
            let work = json!({ "work": "state", "bytes": bytes, "turns": turns });
            vec![(format!("{} kB", bytes / 1_000), work)]
        },
    },
    Plan {
        name: "tools",
        title: "Five tools in a turn",
        unit: "µs per turn",
        better: Better::Less,
        value: "micros",
        takes_part: |entry| !entry.is_floor(),
        columns: |quick| {
            let work = |journal: bool| {
                let turns = if quick { 2 } else { 40 };
                json!({ "work": "tools", "tools": 5, "turns": turns, "journal": journal })
            };
            vec![
                ("with a journal".to_owned(), work(true)),
                ("without".to_owned(), work(false)),
            ]
        },
    },
    Plan {
        name: "resume",
        title: "A session of 400 turns continued by another process",
        unit: "µs until its next turn is saved",
        better: Better::Less,
        value: "micros",
        takes_part: |entry| entry.is_durable() && !entry.is_floor(),
        columns: |quick| {
            let turns = if quick { 4 } else { 400 };
            vec![(
                format!("{turns} turns"),
                json!({ "work": "resume", "turns": turns }),
            )]
        },
    },
];

/// A way to be answered over HTTP.
struct HttpAnswer {
    name: &'static str,
    title: &'static str,
    accept: &'static str,
    /// In how many pieces the model answers.
    pieces: usize,
}

const IN_ONE_ANSWER: HttpAnswer = HttpAnswer {
    name: "http",
    title: "Turns over HTTP, in one answer each",
    accept: "application/json",
    pieces: 1,
};

const STREAMED: HttpAnswer = HttpAnswer {
    name: "http-stream",
    title: "Turns over HTTP, each streamed in five pieces",
    accept: "text/event-stream",
    pieces: 5,
};

/// Measures the tables that are asked for, all of them if none is, and prints each.
pub(crate) fn measure(
    peers: &Peers,
    only: &[String],
    rounds: usize,
    quick: bool,
    runtime: &tokio::runtime::Runtime,
) -> Result<Measurements> {
    let bench = Bench { peers, rounds, quick };
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    let mut measured = Measurements {
        versions: bench.versions()?,
        tables: Vec::new(),
    };
    for version in &measured.versions {
        println!("{version}");
    }
    let plans = PLANS.iter().filter(|plan| is_wanted(plan.name));
    let mut tables: Vec<Box<dyn FnOnce() -> Result<Table>>> = Vec::new();
    for plan in plans {
        tables.push(Box::new(|| bench.table(plan)));
    }
    for answer in [&IN_ONE_ANSWER, &STREAMED] {
        if is_wanted(answer.name) {
            tables.push(Box::new(|| bench.http(runtime, answer)));
        }
    }
    if is_wanted("start") {
        tables.push(Box::new(|| bench.start(runtime)));
    }
    if is_wanted("idle") {
        tables.push(Box::new(|| bench.idle()));
    }
    for table in tables {
        let table = table()?;
        println!("\n{} ({})\n\n{}", table.title, table.name, table.to_markdown());
        measured.tables.push(table);
    }
    Ok(measured)
}

/// All that one run measured.
#[derive(Debug)]
pub(crate) struct Measurements {
    pub(crate) versions: Vec<String>,
    pub(crate) tables: Vec<Table>,
}

#[derive(Clone, Copy)]
struct Bench<'a> {
    peers: &'a Peers,
    rounds: usize,
    quick: bool,
}

impl Bench<'_> {
    /// Returns what each contender that is here calls itself, and says which are not.
    fn versions(self) -> Result<Vec<String>> {
        let mut versions = Vec::new();
        for program in Program::ALL {
            versions.push(match program.start(self.peers)? {
                Some(mut contender) => contender.version()?,
                None => format!("{}: not here, left out", program.name()),
            });
        }
        Ok(versions)
    }

    fn table(self, plan: &Plan) -> Result<Table> {
        let columns = (plan.columns)(self.quick);
        let entries: Vec<Entry> = self.entries(plan.takes_part);
        let mut rows: Vec<Row> = entries.iter().map(|entry| row(entry, columns.len())).collect();
        for (column, (_, work)) in columns.iter().enumerate() {
            let mut values = vec![Vec::new(); entries.len()];
            for _ in 0..self.rounds {
                for (entry, values) in entries.iter().zip(&mut values) {
                    values.extend(self.once(entry, work, plan.value)?);
                }
            }
            for (row, values) in rows.iter_mut().zip(values) {
                row.cells[column] = Measured::of(values);
            }
        }
        // Who cannot do any of it is not in the table.
        rows.retain(|row| row.cells.iter().any(Option::is_some));
        Ok(Table {
            name: plan.name,
            title: plan.title,
            unit: plan.unit,
            better: plan.better,
            columns: columns.into_iter().map(|(head, _)| head).collect(),
            rows,
        })
    }

    fn entries(self, takes_part: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let is_here = |entry: &&Entry| entry.class != POSTGRES || self.peers.postgres.is_some();
        let entries = ENTRIES.iter().filter(is_here);
        entries.filter(|entry| takes_part(entry)).copied().collect()
    }

    /// Has one piece of work done by a fresh process in a folder of its own.
    fn once(self, entry: &Entry, work: &Value, value: &str) -> Result<Option<f64>> {
        if work["turns"].as_u64() > u64::try_from(entry.most_turns).ok() {
            return Ok(None);
        }
        let Some(mut contender) = entry.program.start(self.peers)? else {
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let mut work = self.at(entry, work, &folder);
        // A session is continued by another process than the one that began it.
        if work["work"] == "resume" {
            let mut begin = work.clone();
            begin["work"] = json!("conversation");
            begin["samples"] = json!(1);
            if contender.ask(&begin)?.is_none() {
                return Ok(None);
            }
            drop(contender);
            let Some(again) = entry.program.start(self.peers)? else {
                return Ok(None);
            };
            contender = again;
        } else {
            warm_up(&mut contender, entry, self)?;
        }
        let said = work["said"].take().as_f64();
        let answer = contender.ask(&work)?;
        let found = answer.as_ref().and_then(|answer| answer[value].as_f64());
        Ok(found.map(|found| said.map_or(found, |said| found / said)))
    }

    fn at(self, entry: &Entry, work: &Value, folder: &TempDir) -> Value {
        let mut work = work.clone();
        work["store"] = json!(entry.store);
        if entry.is_durable() {
            work["folder"] = json!(folder.path());
        }
        if let (POSTGRES, Some(url)) = (entry.class, &self.peers.postgres) {
            work["url"] = json!(url);
        }
        work
    }

    /// Turns over HTTP, asked for by a growing number of clients.
    fn http(self, runtime: &tokio::runtime::Runtime, answer: &HttpAnswer) -> Result<Table> {
        let clients = if self.quick { vec![1, 4] } else { vec![1, 16, 256] };
        let mut table = Table {
            name: answer.name,
            title: answer.title,
            unit: "turns per second",
            better: Better::More,
            columns: clients
                .iter()
                .map(|clients| format!("{clients} clients"))
                .collect(),
            rows: Vec::new(),
        };
        for entry in self.servers() {
            table.rows.push(row(&entry, clients.len()));
        }
        for (column, clients) in clients.into_iter().enumerate() {
            let mut values = vec![Vec::new(); table.rows.len()];
            for _ in 0..self.rounds {
                for (entry, values) in self.servers().iter().zip(&mut values) {
                    let Some(mut server) = entry.program.start(self.peers)? else {
                        continue;
                    };
                    let (address, path) = served(&mut server, answer.pieces)?;
                    let seconds = if self.quick { 0.2 } else { 3.0 };
                    let used = server.processor_seconds();
                    let answered = runtime.block_on(load(address, &path, answer.accept, clients, seconds))?;
                    values.push(answered / seconds);
                    if let (Some(before), Some(after)) = (used, server.processor_seconds()) {
                        let each = (after - before) / answered * 1e6;
                        println!(
                            "{}: {clients} clients, {each:.0} µs of processor time a turn",
                            entry.label
                        );
                    }
                }
            }
            for (row, values) in table.rows.iter_mut().zip(values) {
                row.cells[column] = Measured::of(values);
            }
        }
        table.rows.retain(|row| row.cells.iter().any(Option::is_some));
        Ok(table)
    }

    fn servers(self) -> Vec<Entry> {
        let serves = |entry: &Entry| {
            entry.class == MEMORY
                && matches!(
                    entry.program,
                    Program::Everturn | Program::GenkitJs | Program::GenkitGo
                )
        };
        self.entries(serves)
    }

    /// From the start of a process to its first turn over HTTP.
    fn start(self, runtime: &tokio::runtime::Runtime) -> Result<Table> {
        let mut rows = Vec::new();
        for entry in self.servers() {
            let mut values = Vec::new();
            for _ in 0..self.rounds {
                let begun = Instant::now();
                let Some(mut server) = entry.program.start(self.peers)? else {
                    continue;
                };
                let (address, path) = served(&mut server, IN_ONE_ANSWER.pieces)?;
                runtime.block_on(load(address, &path, IN_ONE_ANSWER.accept, 1, 0.0))?;
                values.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            let mut row = row(&entry, 1);
            row.cells[0] = Measured::of(values);
            rows.push(row);
        }
        rows.retain(|row| row.cells[0].is_some());
        Ok(Table {
            name: "start",
            title: "From the start of a process to its first turn over HTTP",
            unit: "ms",
            better: Better::Less,
            columns: vec!["first turn".to_owned()],
            rows,
        })
    }

    /// The memory of conversations that nobody continues.
    fn idle(self) -> Result<Table> {
        let sessions: u32 = if self.quick { 20 } else { 10_000 };
        let mut rows = Vec::new();
        for entry in self.entries(|entry| entry.class == MEMORY) {
            let Some(mut contender) = entry.program.start(self.peers)? else {
                continue;
            };
            warm_up(&mut contender, &entry, self)?;
            let before = contender.resident_bytes();
            if contender
                .ask(&json!({ "work": "hold", "sessions": sessions, "store": "memory" }))?
                .is_none()
            {
                continue;
            }
            let mut row = row(&entry, 1);
            if let (Some(before), Some(after)) = (before, contender.resident_bytes()) {
                #[expect(clippy::cast_precision_loss, reason = "a size for people")]
                let grown = after.saturating_sub(before) as f64;
                row.cells[0] = Measured::of(vec![grown / f64::from(sessions) / 1e3]);
            }
            rows.push(row);
        }
        Ok(Table {
            name: "idle",
            title: "Memory of sessions of one turn, in memory, that nobody continues",
            unit: "kB per session",
            better: Better::Less,
            columns: vec![format!("{sessions} sessions")],
            rows,
        })
    }
}

/// Runs a few turns first, so that what a process does once is not measured.
fn warm_up(contender: &mut Contender, entry: &Entry, bench: Bench<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let few = json!({ "work": "conversation", "turns": 5, "samples": 1 });
    contender.ask(&bench.at(entry, &few, &folder))?;
    Ok(())
}

fn row(entry: &Entry, columns: usize) -> Row {
    Row {
        name: entry.label.to_owned(),
        class: entry.class,
        is_ours: entry.program == Program::Everturn && !entry.is_floor(),
        cells: vec![None; columns],
    }
}

/// Has a program serve an agent whose model answers in so many pieces: where, and under which path.
fn served(server: &mut Contender, pieces: usize) -> Result<(SocketAddr, String)> {
    let answer = server.ask(&json!({ "work": "serve", "pieces": pieces }))?;
    let answer = answer.ok_or_else(|| Error::internal("a server of the comparison cannot serve"))?;
    let address = answer["address"].as_str().unwrap_or_default();
    let address = address
        .parse()
        .map_err(|_| Error::internal(format!("'{address}' is no address")))?;
    Ok((address, answer["path"].as_str().unwrap_or("/").to_owned()))
}
