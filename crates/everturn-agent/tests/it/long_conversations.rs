//! Conversations that are longer than what the model sees of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use everturn_agent::archive::{Archive, Import};
use everturn_agent::store::{MemoryStore, Scope};
use everturn_agent::{Agent, AgentInit, AgentSession, agent, custom_agent};
use everturn_ai::window::Summary;
use everturn_ai::{
    FinishReason, History, Message, ModelInfo, ModelRequest, ModelResponse, Window, define_model, reason,
    set_default_model,
};
use everturn_core::{Error, Registry};
use tokio::sync::Notify;

/// The requests that the agent's model got, and the number of summaries that the other model wrote.
#[derive(Clone, Default)]
struct Provider {
    requests: Arc<Mutex<Vec<ModelRequest>>>,
    summaries: Arc<AtomicUsize>,
    /// Whether summaries are begun and never come to an end.
    stuck: Arc<AtomicBool>,
    begun: Arc<Notify>,
}

impl Provider {
    fn registry(&self) -> Registry {
        let registry = Registry::new();
        let kept = Arc::clone(&self.requests);
        define_model(
            &registry,
            "m",
            ModelInfo::default(),
            move |request: ModelRequest, _, _| {
                let number = request.messages.last().map(|message| message.text().into_owned());
                kept.lock().unwrap().push(request);
                async move {
                    Ok(ModelResponse::text_of(format!(
                        "re {}",
                        number.unwrap_or_default()
                    )))
                }
            },
        )
        .unwrap();
        let provider = self.clone();
        define_model(&registry, "small", ModelInfo::default(), move |_, _, _| {
            let provider = provider.clone();
            async move {
                provider.begun.notify_one();
                if provider.stuck.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                let number = provider.summaries.fetch_add(1, Ordering::Relaxed) + 1;
                Ok(ModelResponse::text_of(format!("summary-{number}")))
            }
        })
        .unwrap();
        set_default_model(&registry, "m");
        registry
    }

    fn summaries(&self) -> usize {
        self.summaries.load(Ordering::Relaxed)
    }

    fn last_request(&self) -> ModelRequest {
        self.requests.lock().unwrap().last().unwrap().clone()
    }
}

fn window() -> Window {
    Window::last_tokens(400).summarize_with("small")
}

fn clerk(provider: &Provider, store: &MemoryStore, window: Window) -> Agent {
    let registry = provider.registry();
    let clerk = agent(&registry, "clerk")
        .system("Be kind.")
        .store(store.clone())
        .window(window);
    clerk.define().unwrap()
}

/// A message of about fifty tokens.
fn question(turn: usize) -> String {
    format!("question {turn} {}", "x".repeat(180))
}

/// Runs turns on the session `s`, and returns the snapshot of the last one.
async fn talk(agent: &Agent, turns: std::ops::Range<usize>) -> everturn_agent::SnapshotId {
    let mut tip = None;
    for turn in turns {
        let reply = agent.chat().resume("s").run(question(turn)).await.unwrap();
        tip = reply.snapshot_id().cloned();
    }
    tip.unwrap()
}

/// Runs turns on the session `s` until so many summaries were made; the window is half empty then. Returns
/// the snapshot of the last turn.
async fn talk_until_summary(agent: &Agent, provider: &Provider, number: usize) -> everturn_agent::SnapshotId {
    for turn in 0..100 {
        let tip = talk(agent, turn..turn + 1).await;
        if provider.summaries() == number {
            return tip;
        }
    }
    panic!("no summary {number} is made");
}

async fn messages(agent: &Agent, session: &str) -> History {
    let snapshot = agent.latest_snapshot(session).await.unwrap();
    snapshot.state.unwrap().messages
}

fn stored(history: &History) -> Vec<String> {
    history
        .iter()
        .filter_map(Summary::on)
        .map(|summary| summary.text)
        .collect()
}

fn shown(request: &ModelRequest, text: &str) -> bool {
    request
        .messages
        .iter()
        .any(|message| message.text().contains(text))
}

#[tokio::test]
async fn the_session_keeps_everything_and_the_model_sees_the_end() {
    let (provider, store) = (Provider::default(), MemoryStore::new());
    let clerk = clerk(&provider, &store, Window::last_tokens(400));

    talk(&clerk, 0..20).await;

    let request = provider.last_request();
    assert_eq!(messages(&clerk, "s").await.len(), 40);
    assert!(request.messages.len() < 12 && shown(&request, "Be kind.") && shown(&request, "question 19"));
    assert!(!shown(&request, "question 0 "));
}

#[tokio::test]
async fn a_summary_is_shared_by_branches_and_by_other_processes() {
    let (provider, store) = (Provider::default(), MemoryStore::new());
    let first = clerk(&provider, &store, window());
    let tip = talk_until_summary(&first, &provider, 3).await;

    // Another process, which remembers nothing, and two branches.
    let second = clerk(&provider, &store, window());
    for branch in ["left", "right"] {
        second.chat().snapshot(tip.clone()).run(branch).await.unwrap();
        assert!(shown(&provider.last_request(), "summary-3"));
    }

    assert_eq!(provider.summaries(), 3);
    let stored = stored(&messages(&second, "s").await);
    assert_eq!(
        stored,
        ["summary-1", "summary-2", "summary-3"],
        "each is stored once"
    );
}

#[tokio::test]
async fn a_summary_goes_with_an_exported_session() {
    let (provider, store) = (Provider::default(), MemoryStore::new());
    talk_until_summary(&clerk(&provider, &store, window()), &provider, 3).await;
    let mut file = Vec::new();
    let archive = Archive::of(store, Scope::default());
    archive.export("s", &mut file).await.unwrap();

    let elsewhere = MemoryStore::new();
    let archive = Archive::of(elsewhere.clone(), Scope::default());
    archive.import(file.as_slice(), Import::default()).await.unwrap();
    talk(&clerk(&provider, &elsewhere, window()), 20..21).await;

    assert_eq!(provider.summaries(), 3);
    assert!(shown(&provider.last_request(), "summary-3"));
}

#[tokio::test]
async fn a_client_that_keeps_the_state_keeps_the_summaries_too() {
    let provider = Provider::default();
    let registry = provider.registry();
    let clerk = agent(&registry, "clerk")
        .system("Be kind.")
        .window(window())
        .define()
        .unwrap();

    let mut state = None;
    for turn in 0..20 {
        let chat = match state.take() {
            Some(state) => clerk.chat().state(state),
            None => clerk.chat(),
        };
        let reply = chat.run(question(turn)).await.unwrap();
        state = reply.state().cloned();
    }

    let made = provider.summaries();
    assert_eq!(stored(&state.unwrap().messages).len(), made);
    assert!((2..=10).contains(&made), "{made}");
}

#[tokio::test]
async fn a_process_that_dies_while_a_summary_is_made_loses_nothing() {
    let (provider, store) = (Provider::default(), MemoryStore::new());
    provider.stuck.store(true, Ordering::Relaxed);
    let dying = clerk(&provider, &store, window().ahead_of_time());
    // The third turn fills the window to more than three quarters.
    talk(&dying, 0..4).await;
    provider.begun.notified().await;
    drop(dying);

    provider.stuck.store(false, Ordering::Relaxed);
    let next = clerk(&provider, &store, window().ahead_of_time());
    talk(&next, 4..20).await;

    let history = messages(&next, "s").await;
    assert_eq!(history.len(), 40);
    assert!(provider.summaries() >= 2);
    assert!(shown(&provider.last_request(), "summary-"));
}

#[tokio::test]
async fn a_turn_that_asks_by_itself_has_the_agents_window() {
    let (provider, store) = (Provider::default(), MemoryStore::new());
    let registry = provider.registry();
    let own = custom_agent(&registry, "own", |session: AgentSession| async move {
        session
            .run(|turn| async move { Ok(turn.generate().history().await?.finish_reason) })
            .await?;
        Ok(session.result())
    });
    let own = own.store(store).window(window()).define().unwrap();

    talk(&own, 0..20).await;

    let history = messages(&own, "s").await;
    assert_eq!(history.len(), 40);
    assert_eq!(stored(&history).len(), provider.summaries());
    assert!(provider.last_request().messages.len() < 12);
}

#[tokio::test]
async fn an_agent_without_a_window_outlives_its_models_limit() {
    let registry = Registry::new();
    define_model(
        &registry,
        "m",
        ModelInfo::default(),
        |request: ModelRequest, _, _| async move {
            if request.messages.stats().tokens > 1_000 {
                return Err(Error::invalid_argument("too long")
                    .with_reason(reason::REQUEST_TOO_LONG)
                    .into());
            }
            Ok(ModelResponse {
                finish_reason: Some(FinishReason::Stop),
                ..ModelResponse::text_of("yes")
            })
        },
    )
    .unwrap();
    let clerk = agent(&registry, "clerk")
        .model("m")
        .store(MemoryStore::new())
        .define()
        .unwrap();

    talk(&clerk, 0..60).await;

    assert_eq!(messages(&clerk, "s").await.len(), 120);
}

/// The facts checked of each request, without keeping it.
#[derive(Default)]
struct Requests {
    last: Vec<Message>,
    moves: usize,
    largest: u64,
}

#[tokio::test]
async fn ten_thousand_turns_make_few_summaries_and_the_beginning_of_requests_seldom_changes() {
    const TURNS: usize = 10_000;
    let registry = Registry::new();
    let requests = Arc::new(Mutex::new(Requests::default()));
    let checked = Arc::clone(&requests);
    define_model(
        &registry,
        "m",
        ModelInfo::default(),
        move |request: ModelRequest, _, _| {
            let mut requests = checked.lock().unwrap();
            let now: Vec<Message> = request.messages.iter().cloned().collect();
            requests.moves += usize::from(!now.starts_with(&requests.last));
            requests.largest = requests.largest.max(request.messages.stats().tokens);
            requests.last = now;
            async { Ok(ModelResponse::text_of("yes")) }
        },
    )
    .unwrap();
    let summaries = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&summaries);
    define_model(&registry, "small", ModelInfo::default(), move |_, _, _| {
        let number = made.fetch_add(1, Ordering::Relaxed);
        async move { Ok(ModelResponse::text_of(format!("summary {number}"))) }
    })
    .unwrap();
    let clerk = agent(&registry, "clerk")
        .model("m")
        .system("Be kind.")
        .window(window().ahead_of_time())
        .store(MemoryStore::new())
        .define()
        .unwrap();
    let mut connection = clerk.connect(AgentInit::session("s"));
    let mut halfway = 0;

    for turn in 0..TURNS {
        connection.send(format!("question {turn}")).await.unwrap();
        let mut chunks = connection.receive();
        while chunks.next().await.is_some() {}
        if turn == TURNS / 2 {
            halfway = summaries.load(Ordering::Relaxed);
        }
    }

    let made = summaries.load(Ordering::Relaxed);
    let requests = requests.lock().unwrap();
    println!(
        "{made} summaries, {} moves, {} tokens",
        requests.moves, requests.largest
    );
    assert!(
        made.abs_diff(2 * halfway) <= made / 50,
        "{halfway} in the first half, {made} in all"
    );
    assert!(
        made.abs_diff(requests.moves) <= 1,
        "{made} summaries, {} moves",
        requests.moves
    );
    // Each turn has about 15 tokens, and a move is half a window.
    assert!(requests.moves <= TURNS * 20 / 200, "{}", requests.moves);
    assert!(requests.largest <= 450, "{}", requests.largest);
}
