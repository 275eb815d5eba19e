//! The tables with one process per cell.

use everturn::prelude::{Value, json};

use super::entry::{Entry, MEMORY, POSTGRES};
use crate::table::Better;

/// A table, selected by its name.
pub(super) struct Plan {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) better: Better,
    /// The displayed member of the answer.
    pub(super) value: &'static str,
    pub(super) takes_part: fn(&Entry) -> bool,
    /// The column headings and the work of each, for full and quick runs.
    pub(super) columns: fn(quick: bool) -> Vec<(String, Value)>,
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

/// The tables with one request per cell.
pub(super) const PLANS: [Plan; 10] = [
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
    Plan {
        name: "prompt",
        title: "A prompt rendered, compiled before",
        unit: "µs",
        better: Better::Less,
        value: "micros",
        takes_part: |entry| entry.class == MEMORY,
        columns: |quick| {
            let times = if quick { 10 } else { 5_000 };
            vec![("50 items".to_owned(), json!({ "work": "render", "times": times }))]
        },
    },
];
