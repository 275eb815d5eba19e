//! This project as a worker: it reads one piece of work per line, as JSON, and answers each with a line, like
//! every peer.

mod everturn_work;
mod floor;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use everturn::Result;
use everturn::ai::{Model, ModelRequest, ModelResponse, ModelResponseChunk};
use everturn::prelude::*;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// The user's message of every turn.
pub(crate) fn question() -> String {
    "q".repeat(500)
}

/// The model's answer of every turn.
fn answer() -> String {
    "a".repeat(1500)
}

/// A model that answers immediately.
struct Silent;

/// The number of pieces in which [`Silent`] answers.
static PIECES: AtomicUsize = AtomicUsize::new(1);

/// Whether [`Silent`] sends one piece and then never answers.
static WAITS: AtomicBool = AtomicBool::new(false);

impl Model for Silent {
    async fn generate(
        &self,
        _: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _: Context,
    ) -> HandlerResult<ModelResponse> {
        let text = answer();
        if WAITS.load(Ordering::Relaxed) {
            emitter.send(ModelResponseChunk::new(text.as_str())).await?;
            std::future::pending::<()>().await;
        }
        let pieces = PIECES.load(Ordering::Relaxed);
        if pieces > 1 {
            let piece = &text[..text.len().div_ceil(pieces)];
            for _ in 0..pieces {
                emitter.send(ModelResponseChunk::new(piece)).await?;
            }
        }
        Ok(ModelResponse::new(Message::model(text)))
    }
}

/// Does the requested work until the input ends.
pub(crate) async fn work() -> Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut out = tokio::io::stdout();
    // Values that a piece of work leaves running, which end with this process.
    let mut kept = Vec::new();
    while let Some(line) = lines.next_line().await? {
        let request: Value = serde_json_from(&line)?;
        let answer = match done(&request, &mut kept).await {
            Ok(answer) => answer,
            Err(error) => json!({ "error": error.to_string() }),
        };
        out.write_all(format!("{answer}\n").as_bytes()).await?;
        out.flush().await?;
    }
    Ok(())
}

async fn done(request: &Value, kept: &mut Vec<Box<dyn std::any::Any>>) -> Result<Value> {
    if request["store"]
        .as_str()
        .is_some_and(|store| store.starts_with("floor"))
    {
        return floor::done(request);
    }
    everturn_work::done(request, kept).await
}

fn serde_json_from(line: &str) -> Result<Value> {
    everturn::serde_json::from_str(line).map_err(Error::foreign)
}

/// A number in the request.
fn number(request: &Value, name: &str) -> usize {
    let number = request[name].as_u64().unwrap_or_default();
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the bytes of all files in a folder.
pub(crate) fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_in(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Returns the median, in microseconds.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
