//! The pieces of work, in the order in which they are measured.

mod entry;
mod http;
mod memory;
mod plan;

use everturn::Result;
use everturn::prelude::{Value, json};
use tempfile::TempDir;

use self::entry::{ENTRIES, Entry, POSTGRES};
use self::http::ANSWERS;
use self::memory::MEMORY_WORKS;
use self::plan::{PLANS, Plan};
use crate::contender::{Contender, Peers, Program};
use crate::page::LEFT_OUT;
use crate::table::{Measured, Row, Table};

/// Measures the selected tables, by default all, and prints each.
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
    let mut works: Vec<Box<dyn FnOnce() -> Result<Vec<Table>>>> = Vec::new();
    for plan in plans {
        works.push(Box::new(|| Ok(vec![bench.table(plan)?])));
    }
    for answer in ANSWERS.iter().filter(|answer| is_wanted(answer.name)) {
        works.push(Box::new(|| bench.http(runtime, answer)));
    }
    if is_wanted("start") {
        works.push(Box::new(|| bench.start(runtime)));
    }
    for memory_work in MEMORY_WORKS
        .iter()
        .filter(|memory_work| is_wanted(memory_work.name))
    {
        works.push(Box::new(|| Ok(vec![bench.memory(memory_work, runtime)?])));
    }
    for work in works {
        for table in work()? {
            println!("\n{} ({})\n\n{}", table.title, table.name, table.to_markdown());
            measured.tables.push(table);
        }
    }
    Ok(measured)
}

/// The measurements of one run.
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
    /// Returns the version of each installed contender, and prints the absent ones.
    fn versions(self) -> Result<Vec<String>> {
        let mut versions = Vec::new();
        for program in Program::ALL {
            versions.push(match program.start(self.peers)? {
                Some(mut contender) => contender.version()?,
                None => format!("{}{LEFT_OUT}", program.name()),
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
        // A contender that supports none of the columns is not in the table.
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

    /// Does one piece of work in a new process and an empty folder.
    fn once(self, entry: &Entry, work: &Value, value: &str) -> Result<Option<f64>> {
        if !entry.takes(work) {
            return Ok(None);
        }
        let Some(mut contender) = entry.program.start(self.peers)? else {
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let mut work = self.at(entry, work, &folder);
        // Another process continues the session.
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
        let user_bytes = work["said"].take().as_f64();
        let answer = contender.ask(&work)?;
        let found = answer.as_ref().and_then(|answer| answer[value].as_f64());
        Ok(found.map(|found| user_bytes.map_or(found, |bytes| found / bytes)))
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
}

/// Warms up with a few turns, so that one-time costs are not measured.
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
