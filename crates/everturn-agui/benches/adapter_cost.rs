//! How much longer a turn takes through an adapter than through the native route, over HTTP on loopback.
//!
//! Run with `cargo bench -p everturn-agui --bench adapter_cost`. The model costs nothing, so the server is
//! measured; with a real model the difference disappears in its latency. Rounds are interleaved, so that
//! other work on this machine slows all routes alike, and the fastest round of each route counts. Each route
//! is measured on a server with and without a stream log. With the name of a route after `--`, only that one
//! runs, for a profiler.

use std::time::{Duration, Instant};

use everturn_agent::agent;
use everturn_agent::store::MemoryStore;
use everturn_agui::ServeAgui;
use everturn_ai::{Model, ModelRequest, ModelResponse, ModelResponseChunk, register_model};
use everturn_core::stream_log::MemoryStreamLog;
use everturn_core::{Context, Emitter, HandlerResult, Registry};
use everturn_openai::ServeOpenAi;
use everturn_server::Server;
use serde_json::{Value, json};

const ROUNDS: usize = 40;

/// A model that repeats a word a given number of times.
struct Chatty(usize);

impl Model for Chatty {
    async fn generate(
        &self,
        _request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        for _ in 0..self.0 {
            emitter.send("word ".into()).await?;
        }
        Ok(ModelResponse::text_of("word ".repeat(self.0)))
    }
}

/// A way to the agents.
struct Way {
    name: &'static str,
    path: fn(&str) -> String,
    body: fn(&str, bool) -> Value,
    /// Whether the answer is always a stream.
    always_streams: bool,
    /// The words at the end of every good answer.
    end: &'static str,
}

const NATIVE: Way = Way {
    name: "native",
    path: |agent| format!("/agents/{agent}"),
    body: |_, _| json!({ "data": { "message": { "role": "user", "content": [{ "text": "hi" }] } }, "init": {} }),
    always_streams: false,
    end: "\"finishReason\":\"stop\"",
};

const ADAPTERS: [Way; 3] = [
    Way {
        name: "AG-UI",
        path: |agent| format!("/agui/{agent}"),
        body: |_, _| {
            let id = unique();
            json!({
                "threadId": id, "runId": id, "protocolVersion": "1.0", "state": {}, "tools": [], "context": [],
                "messages": [{ "id": "1", "role": "user", "content": "hi" }],
            })
        },
        always_streams: true,
        end: "RUN_FINISHED",
    },
    Way {
        name: "Responses",
        path: |_| "/v1/responses".into(),
        body: |agent, streams| json!({ "model": agent, "input": "hi", "stream": streams }),
        always_streams: false,
        end: "\"status\":\"completed\"",
    },
    Way {
        name: "Chat Completions",
        path: |_| "/v1/chat/completions".into(),
        body: |agent, streams| {
            let messages = json!([{ "role": "user", "content": "hi" }]);
            json!({
                "model": agent, "messages": messages, "stream": streams, "metadata": { "conversation_id": unique() },
            })
        },
        always_streams: false,
        end: "\"finish_reason\":\"stop\"",
    },
];

fn unique() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("bench-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Serves the agents on a separate thread; returns the address.
fn serve(keeps_streams: bool) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let registry = Registry::new();
        for (name, chunks) in [("short", 1), ("long", 1_000)] {
            register_model(&registry, name, Chatty(chunks)).expect("the name is free");
            let agent = agent(&registry, name).model(name).system("You chat.");
            agent
                .store(MemoryStore::new())
                .define()
                .expect("the name is free");
        }
        runtime().block_on(async {
            let server = Server::new(&registry).agui().openai();
            let server = if keeps_streams {
                server.stream_log(MemoryStreamLog::new())
            } else {
                server
            };
            let bound = server.bind(("127.0.0.1", 0)).await.expect("a port");
            sender
                .send(format!("http://{}", bound.address()))
                .expect("the bench waits");
            bound.run().await.expect("the server serves");
        });
    });
    receiver.recv().expect("the server starts")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Returns the time of a turn.
async fn turn(client: &reqwest::Client, base: &str, way: &Way, agent: &str, streams: bool) -> Duration {
    let accept = if streams || way.always_streams {
        "text/event-stream"
    } else {
        "application/json"
    };
    let request = client
        .post(format!("{base}{}", (way.path)(agent)))
        .header("accept", accept)
        .json(&(way.body)(agent, streams));
    let began = Instant::now();
    let response = request.send().await.expect("the server answers");
    let text = response.text().await.expect("the answer is whole");
    let took = began.elapsed();
    assert!(text.contains(way.end), "{}: {text}", way.name);
    took
}

/// Prints the times of turns through the adapters, against the native route.
async fn compare(client: &reqwest::Client, base: &str, what: &str, agent: &str, streams: bool, turns: u32) {
    let only = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let mut best = [Duration::MAX; 1 + ADAPTERS.len()];
    for round in 0..ROUNDS {
        for (way, best) in [&NATIVE].into_iter().chain(&ADAPTERS).zip(&mut best) {
            if only.as_ref().is_some_and(|only| only != way.name) {
                continue;
            }
            let mut took = Duration::ZERO;
            for _ in 0..turns {
                took += turn(client, base, way, agent, streams).await;
            }
            // The first round warms up.
            if round > 0 {
                *best = (*best).min(took / turns);
            }
        }
    }
    println!("{what}");
    println!("  {:<18}{:>10.1?}", NATIVE.name, best[0]);
    for (way, time) in ADAPTERS.iter().zip(&best[1..]) {
        let ratio = time.as_secs_f64() / best[0].as_secs_f64();
        println!("  {:<18}{time:>10.1?}   {ratio:.2} times", way.name);
    }
}

fn main() {
    everturn_core::install_tls_provider();
    for (keeping, keeps_streams) in [("streams are not kept", false), ("streams are kept", true)] {
        let base = serve(keeps_streams);
        runtime().block_on(async {
            let client = reqwest::Client::new();
            for (what, agent, streams, turns) in [
                ("a turn, answered whole (AG-UI streams)", "short", false, 50),
                ("a turn, streamed", "short", true, 50),
                ("a turn of 1,000 chunks, streamed", "long", true, 2),
            ] {
                let what = format!("{what}; {keeping}");
                compare(&client, &base, &what, agent, streams, turns).await;
            }
        });
    }
}
