//! Turns over HTTP: throughput, cost, and time to the first turn.

use std::net::SocketAddr;
use std::time::Instant;

use everturn::Result;
use everturn::prelude::{Error, Value, json};
use tokio::runtime::Runtime;

use super::entry::{Entry, MEMORY};
use super::{Bench, row};
use crate::contender::{Contender, Program};
use crate::http_load::load;
use crate::table::{Better, Measured, Row, Table};

/// A way to request a turn over HTTP.
pub(super) struct HttpAnswer {
    pub(super) name: &'static str,
    title: &'static str,
    unit: &'static str,
    accept: &'static str,
    /// The number of pieces of the model's answer.
    pieces: usize,
    /// The number of counted units per turn.
    counted: f64,
    clients: &'static [usize],
    /// The name and title of the table of the server's processor time per turn, if there is one.
    cost: Option<(&'static str, &'static str)>,
    takes_part: fn(&Entry) -> bool,
    /// Whether streams are kept in a stream log of the store's kind.
    is_kept: bool,
}

const IN_ONE_ANSWER: HttpAnswer = HttpAnswer {
    name: "http",
    title: "Turns over HTTP, in one answer each",
    unit: "turns per second",
    accept: "application/json",
    pieces: 1,
    counted: 1.0,
    clients: &[1, 16, 256],
    cost: Some(("http-cost", "Processor time of the server for a turn over HTTP")),
    takes_part: serves,
    is_kept: false,
};

const IN_MANY_CHUNKS: HttpAnswer = HttpAnswer {
    name: "http-chunks",
    title: "An answer in many chunks, over HTTP",
    unit: "chunks per second",
    accept: "text/event-stream",
    pieces: 1_000,
    counted: 1_000.0,
    clients: &[1, 16],
    cost: None,
    ..IN_ONE_ANSWER
};

pub(super) const ANSWERS: [HttpAnswer; 4] = [
    IN_ONE_ANSWER,
    HttpAnswer {
        name: "http-stream",
        title: "Turns over HTTP, each streamed in five pieces",
        accept: "text/event-stream",
        pieces: 5,
        cost: None,
        ..IN_ONE_ANSWER
    },
    IN_MANY_CHUNKS,
    HttpAnswer {
        name: "kept",
        title: "An answer in many chunks, over HTTP, kept in a stream log of that kind",
        takes_part: |entry| {
            entry.program == Program::Everturn && matches!(entry.store, "memory" | "sqlite" | "postgres")
        },
        is_kept: true,
        ..IN_MANY_CHUNKS
    },
];

/// Whether a contender serves its agent over HTTP.
pub(super) fn serves(entry: &Entry) -> bool {
    entry.class == MEMORY
        && matches!(
            entry.program,
            Program::Everturn | Program::GenkitJs | Program::GenkitGo
        )
}

impl Bench<'_> {
    /// Turns over HTTP, requested by a growing number of clients.
    pub(super) fn http(self, runtime: &Runtime, answer: &HttpAnswer) -> Result<Vec<Table>> {
        let clients = if self.quick { &[1, 4][..] } else { answer.clients };
        let entries = self.entries(answer.takes_part);
        let rows = || -> Vec<Row> { entries.iter().map(|entry| row(entry, clients.len())).collect() };
        let (mut speeds, mut costs) = (rows(), rows());
        let folder = tempfile::tempdir()?;
        let work = json!({ "work": "serve", "pieces": answer.pieces, "kept": answer.is_kept });
        for (column, clients) in clients.iter().enumerate() {
            let mut values = vec![(Vec::new(), Vec::new()); entries.len()];
            for _ in 0..self.rounds {
                for (entry, (speeds, costs)) in entries.iter().zip(&mut values) {
                    let Some(mut server) = entry.program.start(self.peers)? else {
                        continue;
                    };
                    let (address, path) = served(&mut server, &self.at(entry, &work, &folder))?;
                    let seconds = if self.quick { 0.2 } else { 3.0 };
                    let used = server.processor_seconds();
                    let answered =
                        runtime.block_on(load(address, &path, answer.accept, *clients, seconds))?;
                    speeds.push(answered * answer.counted / seconds);
                    if let (Some(before), Some(after)) = (used, server.processor_seconds()) {
                        costs.push((after - before) / answered * 1e6);
                    }
                }
            }
            for (at, (speed, cost)) in values.into_iter().enumerate() {
                speeds[at].cells[column] = Measured::of(speed);
                costs[at].cells[column] = Measured::of(cost);
            }
        }
        let table = |name, title, unit, better, mut rows: Vec<Row>| {
            rows.retain(|row| row.cells.iter().any(Option::is_some));
            Table {
                name,
                title,
                unit,
                better,
                columns: clients
                    .iter()
                    .map(|clients| format!("{clients} clients"))
                    .collect(),
                rows,
            }
        };
        let cost = answer
            .cost
            .map(|(name, title)| table(name, title, "µs of processor time", Better::Less, costs));
        let speed = table(answer.name, answer.title, answer.unit, Better::More, speeds);
        Ok([speed].into_iter().chain(cost).collect())
    }

    /// The time from the start of a process to its first turn over HTTP, and the size of the program.
    pub(super) fn start(self, runtime: &Runtime) -> Result<Vec<Table>> {
        let (mut times, mut sizes) = (Vec::new(), Vec::new());
        for entry in self.entries(serves) {
            let mut values = Vec::new();
            for _ in 0..self.rounds {
                let begun = Instant::now();
                let Some(mut server) = entry.program.start(self.peers)? else {
                    continue;
                };
                let (address, path) = served(&mut server, &json!({ "work": "serve", "pieces": 1 }))?;
                runtime.block_on(load(address, &path, IN_ONE_ANSWER.accept, 1, 0.0))?;
                values.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            let one = |values| {
                let mut row = row(&entry, 1);
                row.cells[0] = Measured::of(values);
                row
            };
            times.push(one(values));
            sizes.push(one(entry.program.megabytes(self.peers)?.into_iter().collect()));
        }
        let table = |name, title, unit, column: &str, mut rows: Vec<Row>| {
            rows.retain(|row| row.cells[0].is_some());
            Table {
                name,
                title,
                unit,
                better: Better::Less,
                columns: vec![column.to_owned()],
                rows,
            }
        };
        Ok(vec![
            table(
                "start",
                "From the start of a process to its first turn over HTTP",
                "ms",
                "first turn",
                times,
            ),
            table(
                "size",
                "The program with its libraries, as it is installed; without Node.js",
                "MB",
                "on disk",
                sizes,
            ),
        ])
    }
}

/// Makes a program serve an agent; returns its address and path.
pub(super) fn served(server: &mut Contender, work: &Value) -> Result<(SocketAddr, String)> {
    let answer = server.ask(work)?;
    let answer = answer.ok_or_else(|| Error::internal("a server of the comparison cannot serve"))?;
    let address = answer["address"].as_str().unwrap_or_default();
    let address = address
        .parse()
        .map_err(|_| Error::internal(format!("'{address}' is no address")))?;
    Ok((address, answer["path"].as_str().unwrap_or("/").to_owned()))
}
