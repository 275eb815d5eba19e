//! The work as done by this project.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dotprompt::{Data, Dotprompt};
use everturn::Result;
use everturn::agent::Journaling;
use everturn::agent::store::IntoStore;
use everturn::ai::{Model, ModelRequest, ModelResponse, ModelResponseChunk};
use everturn::core::stream_log::{IntoStreamLog, MemoryStreamLog, StreamLog};
use everturn::postgres::PostgresStreamLog;
use everturn::prelude::*;
use everturn::sqlite::{Durability, SqliteStreamLog};

use super::{PIECES, Silent, WAITS, answer, bytes_in, median, number, question};

pub(super) async fn done(request: &Value, kept: &mut Vec<Box<dyn Any>>) -> Result<Value> {
    match request["work"].as_str().unwrap_or_default() {
        "conversation" => conversation(request).await,
        "sessions" => sessions(request).await,
        "stream" => stream(request).await,
        "resume" => resume(request).await,
        "fork" => fork(request).await,
        "state" => state(request).await,
        "tools" => tools(request).await,
        "render" => render(request),
        "hold" => hold(request, kept).await,
        "detach" => detach(request, kept).await,
        "serve" => serve(request, kept).await,
        "version" => Ok(json!({ "version": format!("Everturn {}", env!("CARGO_PKG_VERSION")) })),
        _ => Ok(json!({ "unsupported": true })),
    }
}

/// Opens the store in the request.
async fn store(request: &Value) -> Result<Arc<dyn SessionStore>> {
    let folder = Path::new(request["folder"].as_str().unwrap_or("."));
    let sqlite = SqliteStore::options(folder.join("sessions.db"));
    Ok(match request["store"].as_str().unwrap_or_default() {
        "memory" => MemoryStore::new().into_store(),
        "sqlite" => sqlite.open().await?.into_store(),
        "sqlite-normal" => sqlite.durability(Durability::Normal).open().await?.into_store(),
        "file" => FileStore::open(folder).await?.into_store(),
        "postgres" => {
            let url = request["url"].as_str().unwrap_or_default();
            PostgresStore::open(url).await?.into_store()
        }
        other => {
            return Err(Error::invalid_argument(format!(
                "there is no store '{other}' here"
            )));
        }
    })
}

async fn app() -> Result<Everturn> {
    Everturn::builder()
        .model("silent", Silent)
        .model("busy", Busy)
        .default_model("silent")
        .build()
        .await
}

fn defined(app: &Everturn, store: Arc<dyn SessionStore>) -> Result<Agent> {
    app.agent("agent")
        .system("You are part of a comparison.")
        .store(store)
        .define()
}

async fn turn(agent: &Agent, session: &str) -> Result<AgentReply> {
    agent.chat().resume(session).run(question().as_str()).await
}

/// A name that no earlier work used, because databases are reused.
fn name_of(request: &Value, session: usize) -> String {
    let folder = request["folder"].as_str().unwrap_or_default();
    let run = Path::new(folder)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    format!("{}-{session}", run.trim_start_matches('.'))
}

/// Returns the duration of a piece of work in microseconds.
async fn timed<T>(work: impl Future<Output = Result<T>>) -> Result<f64> {
    let began = Instant::now();
    work.await?;
    Ok(began.elapsed().as_secs_f64() * 1e6)
}

async fn conversation(request: &Value) -> Result<Value> {
    let app = app().await?;
    let agent = defined(&app, store(request).await?)?;
    let (turns, samples) = (number(request, "turns"), number(request, "samples"));
    let session = name_of(request, 0);
    for _ in 0..turns - samples {
        turn(&agent, &session).await?;
    }
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        times.push(timed(turn(&agent, &session)).await?);
    }
    drop((agent, app));
    let bytes = request["folder"]
        .as_str()
        .map(|folder| bytes_in(Path::new(folder)));
    Ok(json!({ "micros": median(&mut times), "bytes": bytes }))
}

async fn sessions(request: &Value) -> Result<Value> {
    let app = app().await?;
    let agent = defined(&app, store(request).await?)?;
    let turns = number(request, "turns");
    let began = Instant::now();
    let tasks: Vec<_> = (0..number(request, "sessions"))
        .map(|session| {
            let (agent, session) = (agent.clone(), name_of(request, session));
            tokio::spawn(async move {
                let mut times = Vec::with_capacity(turns);
                for _ in 0..turns {
                    times.push(timed(turn(&agent, &session)).await?);
                }
                Ok::<_, Error>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.map_err(Error::foreign)??);
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    let p50 = median(&mut times);
    Ok(json!({ "perSecond": per_second, "p50": p50, "p99": times[times.len() * 99 / 100] }))
}

async fn stream(request: &Value) -> Result<Value> {
    let app = app().await?;
    let agent = defined(&app, MemoryStore::new().into_store())?;
    let chunks = number(request, "chunks");
    PIECES.store(chunks, Ordering::Relaxed);
    let began = Instant::now();
    let mut turn = agent.chat().resume("s").stream(question().as_str()).await?;
    while let Some(chunk) = turn.next().await {
        chunk?;
    }
    turn.output().await?;
    let seconds = began.elapsed().as_secs_f64();
    PIECES.store(1, Ordering::Relaxed);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let per_second = chunks as f64 / seconds;
    Ok(json!({ "perSecond": per_second }))
}

async fn resume(request: &Value) -> Result<Value> {
    let session = name_of(request, 0);
    let resumed = timed(async {
        let app = app().await?;
        let agent = defined(&app, store(request).await?)?;
        turn(&agent, &session).await
    });
    Ok(json!({ "micros": resumed.await? }))
}

async fn fork(request: &Value) -> Result<Value> {
    let app = app().await?;
    let agent = defined(&app, store(request).await?)?;
    let (turns, session) = (number(request, "turns"), name_of(request, 0));
    let mut middle = None;
    for done in 0..turns {
        let reply = turn(&agent, &session).await?;
        if done == turns / 2 {
            middle = reply.snapshot_id().cloned();
        }
    }
    let middle = middle.ok_or_else(|| Error::invalid_argument("a fork needs a turn before it"))?;
    let micros = timed(agent.chat().snapshot(middle).run(question().as_str())).await?;
    Ok(json!({ "micros": micros }))
}

/// A large custom state that changes a little in each turn.
#[payload]
#[derive(Debug, Default, Clone)]
struct Document {
    count: u64,
    items: Vec<String>,
}

async fn state(request: &Value) -> Result<Value> {
    let app = app().await?;
    let items = number(request, "bytes") / 100;
    let agent = app
        .custom_agent("counter", move |session: AgentSession<Document>| async move {
            session
                .run(|turn| async move {
                    turn.update_custom(|document| {
                        document.count += 1;
                        if document.items.is_empty() {
                            document.items = (0..items).map(|item| format!("{item:.>97}")).collect();
                        }
                    });
                    turn.add_message(Message::model("Done."));
                    Ok(FinishReason::Stop)
                })
                .await?;
            Ok(session.result())
        })
        .store(store(request).await?)
        .define()?;
    let session = name_of(request, 0);
    let change = || agent.chat().resume(session.as_str()).run(question());
    change().await?;
    let mut times = Vec::new();
    for _ in 0..number(request, "turns") {
        times.push(timed(change()).await?);
    }
    Ok(json!({ "micros": median(&mut times) }))
}

/// A model that requests five tools, then answers.
struct Busy;

impl Model for Busy {
    async fn generate(
        &self,
        request: ModelRequest,
        _: Emitter<ModelResponseChunk>,
        _: Context,
    ) -> HandlerResult<ModelResponse> {
        let answered = request
            .messages
            .last()
            .is_some_and(|last| last.role() == Role::Tool);
        if answered {
            return Ok(ModelResponse::new(Message::model(answer())));
        }
        let calls = (0..5).map(|at| {
            let request = everturn::ai::ToolRequest::new("look", json!({ "at": at }));
            Part::tool_request(request.with_reference(at.to_string()))
        });
        Ok(ModelResponse::new(Message::model(calls.collect::<Vec<_>>())))
    }
}

/// Looks.
#[tool]
async fn look(at: u32) -> Result<String> {
    let _ = at;
    Ok("seen".into())
}

async fn tools(request: &Value) -> Result<Value> {
    let app = app().await?;
    let journaling = if request["journal"] == false {
        Journaling::Off
    } else {
        Journaling::default()
    };
    let agent = app
        .agent("busy")
        .model("busy")
        .system("You are part of a comparison.")
        .tool(look)
        .journaling(journaling)
        .store(store(request).await?)
        .define()?;
    let mut times = Vec::new();
    for session in 0..number(request, "turns") {
        times.push(timed(turn(&agent, &name_of(request, session))).await?);
    }
    Ok(json!({ "micros": median(&mut times) }))
}

async fn hold(request: &Value, kept: &mut Vec<Box<dyn Any>>) -> Result<Value> {
    let app = app().await?;
    let agent = defined(&app, MemoryStore::new().into_store())?;
    for session in 0..number(request, "sessions") {
        for _ in 0..number(request, "turns") {
            turn(&agent, &format!("s{session}")).await?;
        }
    }
    kept.push(Box::new(app));
    Ok(json!({}))
}

/// Leaves runs in the background whose model never answers.
async fn detach(request: &Value, kept: &mut Vec<Box<dyn Any>>) -> Result<Value> {
    WAITS.store(true, Ordering::Relaxed);
    let app = app().await?;
    let agent = defined(&app, MemoryStore::new().into_store())?;
    for session in 0..number(request, "sessions") {
        let chat = agent.chat().resume(format!("s{session}").as_str());
        let mut chat = chat.open().await?;
        chat.detach(question().as_str()).await?;
    }
    kept.push(Box::new(app));
    Ok(json!({}))
}

const PROMPT: &str = "---
model: silent
---
{{role \"system\"}}
You advise the customers of {{shop}}. Be brief.
{{role \"user\"}}
{{#each items}}
- {{name}}{{#if sold}} (sold){{/if}}: {{price}}
{{/each}}
What of this is on offer?
";

fn render(request: &Value) -> Result<Value> {
    let items = (0..50).map(|at| json!({ "name": format!("item {at}"), "sold": at % 3 == 0, "price": at }));
    let input = json!({ "shop": "the corner shop", "items": items.collect::<Vec<_>>() });
    let prompt = Dotprompt::new().compile(PROMPT).map_err(Error::foreign)?;
    let data = Data::new().input(&input);
    let times = number(request, "times");
    let began = Instant::now();
    for _ in 0..times {
        std::hint::black_box(prompt.render(&data).map_err(Error::foreign)?);
    }
    #[expect(clippy::cast_precision_loss, reason = "a time for people")]
    let micros = began.elapsed().as_secs_f64() * 1e6 / times as f64;
    Ok(json!({ "micros": micros }))
}

/// Opens the stream log in the request.
async fn stream_log(request: &Value) -> Result<Arc<dyn StreamLog>> {
    Ok(match request["store"].as_str().unwrap_or_default() {
        "sqlite" => {
            let folder = Path::new(request["folder"].as_str().unwrap_or("."));
            let log = SqliteStreamLog::open(folder.join("streams.db")).await?;
            log.into_stream_log()
        }
        "postgres" => {
            let url = request["url"].as_str().unwrap_or_default();
            PostgresStreamLog::open(url).await?.into_stream_log()
        }
        _ => MemoryStreamLog::new().into_stream_log(),
    })
}

async fn serve(request: &Value, kept: &mut Vec<Box<dyn Any>>) -> Result<Value> {
    PIECES.store(number(request, "pieces").max(1), Ordering::Relaxed);
    WAITS.store(request["waits"] == true, Ordering::Relaxed);
    let app = app().await?;
    defined(&app, MemoryStore::new().into_store())?;
    let mut server = app.server();
    if request["kept"] == true {
        server = server.stream_log(stream_log(request).await?);
    }
    let server = server.bind(("127.0.0.1", 0)).await?;
    let address = server.address().to_string();
    // Ends with the process, whose input is closed.
    kept.push(Box::new(tokio::spawn(server.run())));
    kept.push(Box::new(app));
    Ok(json!({ "address": address, "path": "/agents/agent" }))
}
