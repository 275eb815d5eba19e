//! The memory of a process with long conversations, idle sessions, background runs or open streams.

use everturn::Result;
use everturn::prelude::{Value, json};
use tokio::runtime::Runtime;

use super::entry::{Entry, MEMORY};
use super::http::{served, serves};
use super::{Bench, row, warm_up};
use crate::contender::Contender;
use crate::http_load::hold_open;
use crate::table::{Better, Measured, Table};

/// A kind of object of which a process keeps many.
pub(super) struct MemoryWork {
    pub(super) name: &'static str,
    title: &'static str,
    unit: &'static str,
    /// The plural, for the column heading.
    what: &'static str,
    many: u32,
    takes_part: fn(&Entry) -> bool,
    /// The work that makes the process keep them.
    work: fn(many: u32) -> Value,
    /// Whether clients keep them from outside, as streams of a server started by the work.
    is_streamed: bool,
}

pub(super) const MEMORY_WORKS: [MemoryWork; 4] = [
    MemoryWork {
        name: "heap",
        title: "Memory of conversations of 400 turns, each turn a snapshot",
        unit: "kB per conversation",
        what: "conversations",
        many: 4,
        takes_part: in_memory,
        work: |many| json!({ "work": "hold", "sessions": many, "turns": 400, "store": "memory" }),
        is_streamed: false,
    },
    MemoryWork {
        name: "idle",
        title: "Memory of sessions of one turn, in memory, that nobody continues",
        unit: "kB per session",
        what: "sessions",
        many: 10_000,
        takes_part: in_memory,
        work: |many| json!({ "work": "hold", "sessions": many, "turns": 1, "store": "memory" }),
        is_streamed: false,
    },
    MemoryWork {
        name: "detached",
        title: "Memory of background runs whose model has not answered yet",
        unit: "kB per run",
        what: "runs",
        many: 1_000,
        takes_part: in_memory,
        work: |many| json!({ "work": "detach", "sessions": many, "store": "memory" }),
        is_streamed: false,
    },
    MemoryWork {
        name: "open",
        title: "Memory of a server for streams that are open, after their first chunk",
        unit: "kB per stream",
        what: "streams",
        many: 1_000,
        takes_part: serves,
        work: |_| json!({ "work": "serve", "waits": true, "pieces": 1 }),
        is_streamed: true,
    },
];

fn in_memory(entry: &Entry) -> bool {
    entry.class == MEMORY
}

impl Bench<'_> {
    /// The memory per object of a process that keeps many.
    pub(super) fn memory(self, memory_work: &MemoryWork, runtime: &Runtime) -> Result<Table> {
        let many = if self.quick {
            20.min(memory_work.many)
        } else {
            memory_work.many
        };
        let mut work = (memory_work.work)(many);
        if self.quick {
            work["turns"] = json!(1);
        }
        let mut rows = Vec::new();
        for entry in self.entries(|entry| (memory_work.takes_part)(entry) && entry.takes(&work)) {
            let Some(mut contender) = entry.program.start(self.peers)? else {
                continue;
            };
            warm_up(&mut contender, &entry, self)?;
            let Some(grown) = grown(&mut contender, memory_work, (many, &work), runtime)? else {
                continue;
            };
            let mut row = row(&entry, 1);
            row.cells[0] = Measured::of(vec![grown / f64::from(many) / 1e3]);
            rows.push(row);
        }
        Ok(Table {
            name: memory_work.name,
            title: memory_work.title,
            unit: memory_work.unit,
            better: Better::Less,
            columns: vec![format!("{many} {}", memory_work.what)],
            rows,
        })
    }
}

/// Returns by how many bytes a process grows with many objects; `None` if it does not support them.
fn grown(
    contender: &mut Contender,
    memory_work: &MemoryWork,
    (many, work): (u32, &Value),
    runtime: &Runtime,
) -> Result<Option<f64>> {
    let (before, after) = if memory_work.is_streamed {
        let (address, path) = served(contender, work)?;
        // The first connections allocate shared data.
        let _first = runtime.block_on(hold_open(address, &path, 10))?;
        let before = contender.resident_bytes();
        let _open = runtime.block_on(hold_open(address, &path, many))?;
        (before, contender.resident_bytes())
    } else {
        let before = contender.resident_bytes();
        if contender.ask(work)?.is_none() {
            return Ok(None);
        }
        (before, contender.resident_bytes())
    };
    #[expect(clippy::cast_precision_loss, reason = "a size for people")]
    let grown = |(before, after): (u64, u64)| after.saturating_sub(before) as f64;
    Ok(before.zip(after).map(grown))
}
