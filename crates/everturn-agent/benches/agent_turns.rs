//! The cost of a turn at turn 100 and at turn 10,000, and the memory of a long conversation.
//!
//! `cargo bench -p everturn-agent --bench agent_turns` prints two tables. The first is the memory that a
//! conversation and all its snapshots take, against that of the bare messages. It comes first, because
//! conversations that are freed late would be taken off. The second is the time of a turn early and late in a
//! conversation: the ratio shows whether a turn costs what it adds or what the conversation holds. The two
//! are measured alternately, so that other load on the machine slows both alike. The last row is an agent
//! around a prompt whose model sees a small window with a summary of the rest.

use std::alloc::System;
use std::time::{Duration, Instant};

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, AgentConnection, AgentInit, AgentSession, agent, custom_agent};
use everturn_ai::{FinishReason, Message, ModelInfo, ModelResponse, Window, define_model};
use everturn_core::Registry;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const EARLY: usize = 100;
const LATE: usize = 10_000;

/// How many turns are measured at either place.
const SAMPLES: usize = 2_000;

/// After so many samples the early conversation starts over, so that it stays short.
const ANEW: usize = 100;

/// How long a message's text is where only time matters.
const TEXT: usize = 500;

fn question(turn: usize, size: usize) -> Message {
    Message::user(format!("{turn:0>size$}"))
}

fn answer(turn: usize, size: usize) -> Message {
    Message::model(format!("{turn:0>size$}"))
}

/// An agent with nothing to think about.
fn trivial(size: usize) -> Agent {
    custom_agent(
        &Registry::new(),
        "trivial",
        move |session: AgentSession| async move {
            session
                .run(|turn| async move {
                    turn.add_message(answer(turn.messages().len() / 2, size));
                    Ok(FinishReason::Stop)
                })
                .await?;
            Ok(session.result())
        },
    )
    .store(MemoryStore::new())
    .define()
    .expect("the agent is well defined")
}

/// A conversation that grows by one turn at a time.
trait Conversation: Sized {
    async fn begin() -> Self;
    async fn turn(&mut self, question: Message);

    async fn of(turns: usize) -> Self {
        let mut conversation = Self::begin().await;
        for turn in 0..turns {
            conversation.turn(question(turn, TEXT)).await;
        }
        conversation
    }
}

/// Each turn is a separate invocation that resumes the session.
struct ByInvocation(Agent);

impl Conversation for ByInvocation {
    async fn begin() -> Self {
        Self(trivial(TEXT))
    }

    async fn turn(&mut self, question: Message) {
        self.0
            .chat()
            .resume("s")
            .run(question)
            .await
            .expect("a trivial turn succeeds");
    }
}

/// All turns go over one connection.
struct ByConnection(AgentConnection);

impl Conversation for ByConnection {
    async fn begin() -> Self {
        Self(trivial(TEXT).connect(AgentInit::session("s")))
    }

    async fn turn(&mut self, question: Message) {
        self.0.send(question).await.expect("the connection is open");
        let mut chunks = self.0.receive();
        while chunks.next().await.is_some() {}
    }
}

/// All turns go over one connection to an agent around a prompt. Its model sees the last 4,000 tokens, and
/// another model writes summaries of the rest.
struct Summarised(AgentConnection);

impl Conversation for Summarised {
    async fn begin() -> Self {
        let registry = Registry::new();
        for (name, size) in [("answers", TEXT), ("summaries", 4 * TEXT)] {
            let answer = ModelResponse::text_of("x".repeat(size));
            define_model(
                &registry,
                name,
                ModelInfo::default(),
                move |_request, _emitter, _context| {
                    let answer = answer.clone();
                    async move { Ok(answer) }
                },
            )
            .expect("the name is free");
        }
        let agent = agent(&registry, "windowed")
            .model("answers")
            .system("Be kind.")
            .window(
                Window::last_tokens(4_000)
                    .summarize_with("summaries")
                    .ahead_of_time(),
            )
            .store(MemoryStore::new())
            .define()
            .expect("the agent is well defined");
        Self(agent.connect(AgentInit::session("s")))
    }

    async fn turn(&mut self, question: Message) {
        self.0.send(question).await.expect("the connection is open");
        let mut chunks = self.0.receive();
        while chunks.next().await.is_some() {}
    }
}

async fn timed(conversation: &mut impl Conversation, turn: usize) -> Duration {
    let question = question(turn, TEXT);
    let began = Instant::now();
    conversation.turn(question).await;
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

async fn report_time<C: Conversation>(how: &str) {
    let mut late = C::of(LATE - SAMPLES / 2).await;
    let mut early = C::of(EARLY - ANEW / 2).await;
    let (mut early_times, mut late_times) = (Vec::new(), Vec::new());
    for sample in 0..SAMPLES {
        if sample % ANEW == 0 {
            early = C::of(EARLY - ANEW / 2).await;
        }
        early_times.push(timed(&mut early, sample).await);
        late_times.push(timed(&mut late, sample).await);
    }
    let (early, late) = (median(early_times), median(late_times));
    let ratio = late.as_secs_f64() / early.as_secs_f64();
    println!("| {how} | {early:.1?} | {late:.1?} | {ratio:.2} |");
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn report_memory(turns: usize, size: usize, bare: usize, whole: usize) {
    let megabytes = |bytes: usize| bytes as f64 / (1024.0 * 1024.0);
    let ratio = whole as f64 / bare as f64;
    println!(
        "| {turns} | {size} B | {:.1} MiB | {:.1} MiB | {ratio:.2} |",
        megabytes(bare),
        megabytes(whole)
    );
}

/// The memory allocated since the region began and not freed.
fn held(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated)
}

async fn weigh(turns: usize, size: usize) {
    let region = Region::new(ALLOCATOR);
    let messages: Vec<Message> = (0..turns)
        .flat_map(|turn| [question(turn, size), answer(turn, size)])
        .collect();
    let bare = held(&region);
    drop(messages);

    let region = Region::new(ALLOCATOR);
    let agent = trivial(size);
    for turn in 0..turns {
        let reply = agent.chat().resume("s").run(question(turn, size)).await;
        reply.expect("a trivial turn succeeds");
    }
    report_memory(turns, size, bare, held(&region));
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(async {
        println!("| turns | message text | bare messages | conversation and all snapshots | ratio |");
        println!("|---|---|---|---|---|");
        weigh(LATE, 500).await;
        weigh(LATE, 2_000).await;
        weigh(400, 1_000).await;
        println!();
        println!("| a turn, memory store | around turn {EARLY} | around turn {LATE} | ratio |");
        println!("|---|---|---|---|");
        report_time::<ByInvocation>("one invocation per turn").await;
        report_time::<ByConnection>("one connection").await;
        report_time::<Summarised>("one connection, a window with summaries").await;
    });
}
