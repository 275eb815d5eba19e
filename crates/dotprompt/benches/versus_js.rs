//! Renders a realistic prompt (a system message, three partials, a history of 50) with this crate and with
//! the npm package `dotprompt`, in one run on the same input, and prints how many times faster this crate is.
//!
//! `cargo bench -p dotprompt --bench versus_js` needs `node` and `npm`; the package is installed once into
//! the folder `.tools/npm` of the workspace. Both sides must render the same messages, or the comparison
//! fails.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use dotprompt::{Data, Dotprompt, Message};
use serde::Deserialize;
use serde_json::{Map, Value};

const PACKAGE: &str = "dotprompt@1.1.2";

#[derive(Deserialize)]
struct Scenario {
    partials: Map<String, Value>,
    input: Value,
    context: Map<String, Value>,
    history: usize,
}

#[derive(Deserialize)]
struct JavaScript {
    messages: Value,
    compiled: f64,
    source: f64,
}

fn main() {
    // Cargo passes this only to run benchmarks; with other commands there is nothing to do.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/versus_js");
    let source = fs::read_to_string(folder.join("support.prompt")).expect("the scenario has a prompt");
    let scenario = fs::read_to_string(folder.join("scenario.json")).expect("the scenario has data");
    let scenario: Scenario = serde_json::from_str(&scenario).expect("the data is JSON");

    let dotprompt = scenario
        .partials
        .iter()
        .fold(Dotprompt::new(), |dotprompt, (name, source)| {
            dotprompt.define_partial(name, source.as_str().expect("a partial is a text"))
        });
    let history: Vec<Message> = (0..scenario.history).map(message).collect();
    let data = Data::new()
        .input(&scenario.input)
        .context(&scenario.context)
        .messages(&history);
    let prompt = dotprompt.compile(&source).expect("the prompt compiles");
    let rendered = prompt.render(&data).expect("the prompt renders");

    // The other side runs before and after, and each side's best sample counts: a busy machine slows both
    // alike.
    let javascript = run_javascript(&folder);
    let messages = serde_json::to_value(&rendered.messages).expect("messages are JSON");
    assert_eq!(
        messages, javascript.messages,
        "both sides render the same messages"
    );

    let compiled = microseconds(5_000, || {
        prompt.render(&data).expect("the prompt renders").messages.len()
    });
    let pieces = microseconds(5_000, || {
        prompt.render_pieces(&data).expect("the prompt renders").len()
    });
    let from_source = microseconds(200, || {
        dotprompt
            .render(&source, &data)
            .expect("it renders")
            .messages
            .len()
    });

    let again = run_javascript(&folder);
    let javascript_compiled = javascript.compiled.min(again.compiled);
    let javascript_source = javascript.source.min(again.source);

    println!("                              JavaScript         Rust        ratio");
    report("compiled once, rendered", javascript_compiled, compiled);
    report("  history left in place", javascript_compiled, pieces);
    report("compiled for each rendering", javascript_source, from_source);
}

fn message(index: usize) -> Message {
    let text =
        format!("Message {index} says a sentence or two about an order, its state and what to do next.");
    if index.is_multiple_of(2) {
        Message::user(text)
    } else {
        Message::model(text)
    }
}

fn report(what: &str, javascript: f64, rust: f64) {
    println!(
        "{what:<28} {javascript:>8.1} µs  {rust:>8.2} µs  {:>9.1} x",
        javascript / rust
    );
}

/// The best of nine samples.
fn microseconds(rounds: u32, run: impl Fn() -> usize) -> f64 {
    for _ in 0..rounds {
        black_box(run());
    }
    let sample = || {
        let start = Instant::now();
        for _ in 0..rounds {
            black_box(run());
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    };
    (0..9).map(|_| sample()).fold(f64::INFINITY, f64::min)
}

fn run_javascript(folder: &Path) -> JavaScript {
    let packages = install();
    let output = Command::new("node")
        .arg(folder.join("render.mjs"))
        .args([folder, packages.as_path()])
        .stderr(Stdio::inherit())
        .output()
        .expect("node is installed");
    assert!(output.status.success(), "the JavaScript side fails");
    serde_json::from_slice(&output.stdout).expect("the JavaScript side prints JSON")
}

fn install() -> PathBuf {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/npm");
    if !packages.join("node_modules/dotprompt").is_dir() {
        fs::create_dir_all(&packages).expect("the tools folder can be created");
        let status = Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--prefix"])
            .arg(&packages)
            .arg(PACKAGE)
            .status()
            .expect("npm is installed");
        assert!(status.success(), "npm cannot install {PACKAGE}");
    }
    packages
}
