//! The cost of the generate loop, with a model that does nothing, over a short and a long history.
//!
//! `cargo bench -p everturn-ai --bench generate_cost` prints the time per call for both and their ratio,
//! measured in turns in one run so that both see the same machine.

use std::hint::black_box;
use std::time::{Duration, Instant};

use everturn_ai::{Generate, History, Message, ModelInfo, ModelResponse, ModelSupports, define_model};
use everturn_core::Registry;

const ROUNDS: usize = 40;
const CALLS: u32 = 500;

fn history(len: usize) -> History {
    let message = |n: usize| {
        if n.is_multiple_of(2) {
            Message::user("And then?")
        } else {
            Message::model("Then this.")
        }
    };
    (0..len).map(message).collect()
}

fn registry() -> Registry {
    let registry = Registry::new();
    define_model(
        &registry,
        "plain",
        ModelInfo::default(),
        |_request, _emitter, _context| async { Ok(ModelResponse::text_of("ok")) },
    )
    .expect("the model is registered once");
    let supports = ModelSupports {
        system_role: Some(false),
        media: Some(false),
        ..ModelSupports::default()
    };
    let simple = ModelInfo {
        supports: Some(supports),
        ..ModelInfo::default()
    };
    define_model(
        &registry,
        "simple",
        simple,
        |_request, _emitter, _context| async { Ok(ModelResponse::text_of("ok")) },
    )
    .expect("the model is registered once");
    registry
}

async fn time(registry: &Registry, model: &str, history: &History) -> Duration {
    let started = Instant::now();
    for _ in 0..CALLS {
        let generate = Generate::new(registry)
            .model(model)
            .system("You cook.")
            .messages(history)
            .prompt("Soup?");
        let generate = generate.docs(["Leeks are in season."]);
        black_box(generate.run().await.expect("the model answers"));
    }
    started.elapsed() / CALLS
}

/// The median, which one slow round does not move.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let registry = registry();
    let (short, long) = (history(10), history(10_000));
    for model in ["plain", "simple"] {
        let mut times = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            times.0.push(runtime.block_on(time(&registry, model, &short)));
            times.1.push(runtime.block_on(time(&registry, model, &long)));
        }
        let (short, long) = (median(times.0), median(times.1));
        let ratio = long.as_secs_f64() / short.as_secs_f64();
        println!("{model}: 10 messages {short:?}, 10,000 messages {long:?}, ratio {ratio:.2}");
    }
}
