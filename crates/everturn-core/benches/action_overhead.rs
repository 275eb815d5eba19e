//! The overhead of an action over the function it wraps, and of a listener.
//!
//! Each row is measured in this one process, first with no subscriber, then with a `tracing` registry and an
//! OpenTelemetry layer whose exporter throws every span away. Times depend on the machine; the ratios are the
//! result.
//!
//! Run it with `cargo bench -p everturn-core`.

use std::future::Future;
use std::hint::black_box;
use std::time::{Duration, Instant};

use everturn_core::{
    Action, ActionType, BidiAction, DynAction, Emitter, HandlerResult, Inputs, JsonCall, run,
};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::testing::trace::NoopSpanExporter;
use opentelemetry_sdk::trace::SdkTracerProvider;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tracing_subscriber::layer::SubscriberExt;

/// How long one sample runs, and how many there are; the fastest counts, because noise only ever adds.
const SAMPLE: Duration = Duration::from_millis(20);
const SAMPLES: usize = 15;

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Order {
    dish: String,
    guests: u8,
    sides: Vec<String>,
}

fn order() -> Order {
    Order {
        dish: "soup".to_owned(),
        guests: 2,
        sides: vec!["bread".to_owned(), "leeks".to_owned()],
    }
}

async fn cook(order: Order) -> HandlerResult<Order> {
    std::future::ready(Ok(black_box(order))).await
}

type Work = dyn Fn(&Runtime, u32);

/// A row: what is measured, and how to do it a number of times.
struct Row {
    name: &'static str,
    work: Box<Work>,
}

impl Row {
    fn new<F, Fut>(name: &'static str, work: F) -> Self
    where
        F: Fn(u32) -> Fut + 'static,
        Fut: Future<Output = ()>,
    {
        Self {
            name,
            work: Box::new(move |runtime, times| runtime.block_on(work(times))),
        }
    }

    /// Nanoseconds for each time.
    fn measure(&self, runtime: &Runtime) -> f64 {
        let time = |times| {
            let start = Instant::now();
            (self.work)(runtime, times);
            start.elapsed()
        };
        let mut times = 64;
        while time(times) < SAMPLE {
            times *= 2;
        }
        let fastest = (0..SAMPLES)
            .map(|_| time(times))
            .min()
            .expect("there are samples");
        fastest.as_secs_f64() * 1e9 / f64::from(times)
    }
}

fn rows() -> Vec<Row> {
    let typed = Action::new(ActionType::CUSTOM, "cook", |order: Order, _| cook(order));
    let erased = typed.clone();
    let unchecked = typed.clone().with_input_schema(None).with_output_schema(None);
    let streams = Action::streaming(
        ActionType::CUSTOM,
        "streams",
        |times: u32, _, emitter: Emitter<Order>| async move {
            for _ in 0..times {
                emitter.send(order()).await?;
            }
            Ok(())
        },
    );
    let echo = BidiAction::new(
        ActionType::CUSTOM,
        "echo",
        |(): (), mut inputs: Inputs<Order>, emitter: Emitter<Order>, _| async move {
            while let Some(input) = inputs.next().await {
                emitter.send(input).await?;
            }
            Ok(())
        },
    );
    let input = serde_json::to_value(order()).expect("an order has a JSON form");
    let other_input = input.clone();

    vec![
        Row::new("the function itself", async |times| {
            for _ in 0..times {
                black_box(cook(order()).await).expect("cooks");
            }
        }),
        Row::new("typed call", move |times| {
            let typed = typed.clone();
            async move {
                for _ in 0..times {
                    black_box(typed.run(order()).await).expect("cooks");
                }
            }
        }),
        Row::new("step", async |times| {
            for _ in 0..times {
                black_box(run("step", || cook(order())).await).expect("cooks");
            }
        }),
        Row::new("JSON call", move |times| {
            let (erased, input) = (erased.clone(), input.clone());
            async move {
                for _ in 0..times {
                    black_box(erased.run_json(JsonCall::new(input.clone())).await).expect("cooks");
                }
            }
        }),
        Row::new("JSON call without schemas", move |times| {
            let (unchecked, input) = (unchecked.clone(), other_input.clone());
            async move {
                for _ in 0..times {
                    black_box(unchecked.run_json(JsonCall::new(input.clone())).await).expect("cooks");
                }
            }
        }),
        Row::new("streamed chunk", move |times| {
            let streams = streams.clone();
            async move {
                let mut streaming = streams.stream(times);
                while let Some(chunk) = streaming.next().await {
                    black_box(chunk);
                }
            }
        }),
        Row::new("round trip of a connection", move |times| {
            let echo = echo.clone();
            async move {
                let mut connection = echo.connect(());
                for _ in 0..times {
                    connection.send(order()).await.expect("the action listens");
                    black_box(connection.receive().next().await);
                }
            }
        }),
        Row::new("connection opened and closed", async |times| {
            let nothing = BidiAction::new(
                ActionType::CUSTOM,
                "nothing",
                |(): (), _: Inputs<()>, _: Emitter<()>, _| async { Ok(()) },
            );
            for _ in 0..times {
                nothing.connect(()).into_output().await.expect("nothing fails");
            }
        }),
    ]
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let rows = rows();
    // Before any subscriber exists: once there is one, a disabled span costs a little more in the whole
    // process.
    let unobserved: Vec<f64> = rows.iter().map(|row| row.measure(&runtime)).collect();

    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(NoopSpanExporter::new())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("bench"));
    let _listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let observed: Vec<f64> = rows.iter().map(|row| row.measure(&runtime)).collect();

    println!(
        "{:<30} {:>12} {:>12} {:>8}",
        "", "no subscriber", "subscriber", "ratio"
    );
    for ((row, unobserved), observed) in rows.iter().zip(unobserved).zip(observed) {
        println!(
            "{:<30} {unobserved:>10.0} ns {observed:>10.0} ns {:>8.2}",
            row.name,
            observed / unobserved
        );
    }
}
