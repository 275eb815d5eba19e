//! The cost of exporting the spans of a turn, for a turn without model, tools and store.
//!
//! Run with `cargo bench -p everturn-otlp`. The collector accepts and discards everything. Turns run at full
//! speed, so the exporter may not keep up; dropped spans are counted.

use std::time::{Duration, Instant};

use everturn_agent::{Agent, AgentSession, custom_agent};
use everturn_core::Registry;
use everturn_otlp::Otlp;

const ROUNDS: usize = 7;
const TURNS: u32 = 20_000;

fn idler() -> Agent {
    custom_agent(&Registry::new(), "idler", |session: AgentSession| async move {
        session.run(|_turn| async { Ok(()) }).await?;
        Ok(session.result())
    })
    .define()
    .expect("the name is free")
}

/// Returns the time of a turn, the shortest of several rounds, because other programs use this machine, too.
fn measure(runtime: &tokio::runtime::Runtime, agent: &Agent) -> Duration {
    let round = || {
        let began = Instant::now();
        runtime.block_on(async {
            for _ in 0..TURNS {
                agent.run_text("hello").await.expect("nothing can fail");
            }
        });
        began.elapsed() / TURNS
    };
    (0..ROUNDS).map(|_| round()).min().unwrap_or_default()
}

/// A collector on a separate thread.
fn collector() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    listener.set_nonblocking(true).expect("a socket");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let app = axum::Router::new().fallback(|_body: axum::body::Bytes| async {});
            axum::serve(listener, app).await.expect("the collector serves");
        });
    });
    url
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let agent = idler();
    measure(&runtime, &agent);

    let alone = measure(&runtime, &agent);
    let telemetry = Otlp::new()
        .endpoint(collector())
        .start()
        .expect("the address is one");
    let exported = measure(&runtime, &agent);

    let cost = exported.saturating_sub(alone);
    println!("a turn                    {alone:>10.1?}");
    println!("a turn that is exported   {exported:>10.1?}");
    println!(
        "at 10,000 turns a second  {:>9.1} % of the time",
        cost.as_secs_f64() * 10_000.0 * 100.0
    );
    let spans = u64::from(TURNS) * ROUNDS as u64 * 2;
    println!("spans dropped             {:>10} of {spans}", telemetry.dropped());
}
