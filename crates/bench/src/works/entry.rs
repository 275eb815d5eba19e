//! The entries: programs, each with one of its stores.

use everturn::prelude::Value;

use crate::contender::Program;

/// A program with one of its stores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) program: Program,
    pub(super) store: &'static str,
    pub(super) label: &'static str,
    pub(super) class: &'static str,
    /// The longest conversation that the contender is measured with: some slow down with every turn.
    pub(super) most_turns: usize,
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

pub(super) const MEMORY: &str = "memory";
const DURABLE: &str = "durable";
const FILES: &str = "files";
pub(super) const POSTGRES: &str = "postgres";

/// The entries. The other rows of a class are compared with this project's first row of it.
pub(super) const ENTRIES: [Entry; 16] = [
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
        100,
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
    entry(Program::GenkitPython, "file", "Genkit Python, files", FILES, 100),
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
    pub(super) fn is_floor(&self) -> bool {
        self.store.starts_with("floor")
    }

    pub(super) fn is_durable(&self) -> bool {
        self.class != MEMORY
    }

    /// Returns whether the contender is measured with conversations of this length.
    pub(super) fn takes(&self, work: &Value) -> bool {
        work["turns"].as_u64() <= u64::try_from(self.most_turns).ok()
    }
}
