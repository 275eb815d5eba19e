//! A call that is repeated with its key returns the stored turn, or continues it if it failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentReply, AgentSession, IdempotencyKey, SnapshotId, TurnDetails, agent, custom_agent,
};
use everturn_ai::{
    Message, ModelInfo, ModelResponse, Part, Role, Tool, ToolContext, ToolRequest, define_model,
    set_default_model,
};
use everturn_core::{Context, Error, Registry, Result, Status};
use serde_json::{Value, json};

/// An agent that counts its turns. A turn with the message "fail" fails the first time.
fn counting(runs: &Arc<AtomicUsize>) -> Agent {
    let runs = Arc::clone(runs);
    custom_agent(&Registry::new(), "counting", move |session: AgentSession| {
        let runs = Arc::clone(&runs);
        async move {
            session
                .run(move |turn| {
                    let runs = Arc::clone(&runs);
                    async move {
                        let run = runs.fetch_add(1, Ordering::Relaxed) + 1;
                        let said = turn.input().message.as_ref().map(Message::text);
                        if said.as_deref() == Some("fail") && run == 1 {
                            return Err(Error::unavailable("the model is not available").into());
                        }
                        turn.add_message(Message::model(format!("run {run}")));
                        Ok(())
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
    .store(MemoryStore::new())
    .define()
    .unwrap()
}

fn keyed(key: &str) -> Context {
    Context::new().with_extension(Arc::new(IdempotencyKey::new(key)))
}

async fn say(agent: &Agent, key: &str, text: &str) -> Result<AgentReply> {
    agent.chat().resume("s").context(keyed(key)).run(text).await
}

#[tokio::test]
async fn a_repeated_call_returns_the_stored_turn_and_another_one_runs() {
    let runs = Arc::default();
    let agent = counting(&runs);

    let first = say(&agent, "a", "yes").await.unwrap();
    let repeated = say(&agent, "a", "yes").await.unwrap();
    let other_key = say(&agent, "b", "yes").await.unwrap();
    let other_input = say(&agent, "b", "no").await.unwrap();

    assert_eq!(repeated.snapshot_id(), first.snapshot_id());
    assert_eq!(
        (repeated.text(), other_key.text()),
        ("run 1".into(), "run 2".into())
    );
    assert_eq!(other_input.text(), "run 3");
    assert_eq!(runs.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_call_is_recognised_after_later_turns_and_where_it_names_its_snapshot() {
    let runs = Arc::default();
    let agent = counting(&runs);
    let base: SnapshotId = say(&agent, "base", "hello")
        .await
        .unwrap()
        .snapshot_id()
        .unwrap()
        .clone();
    let call = async || {
        let chat = agent.chat().snapshot(base.clone()).context(keyed("a"));
        chat.run("yes").await.unwrap()
    };
    let first = call().await;
    say(&agent, "later", "one more").await.unwrap();
    agent.chat().resume("s").run("without a key").await.unwrap();

    let repeated = (call().await, say(&agent, "a", "yes").await.unwrap());

    assert_eq!(repeated.0.snapshot_id(), first.snapshot_id());
    assert_eq!(repeated.1.snapshot_id(), first.snapshot_id());
    assert_eq!(repeated.1.text(), "run 2");
    assert_eq!(runs.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_turn_that_failed_is_run_when_its_call_is_repeated() {
    let runs = Arc::default();
    let agent = counting(&runs);

    let failed = say(&agent, "a", "fail").await;
    let repeated = say(&agent, "a", "fail").await.unwrap();

    assert!(failed.is_err());
    assert_eq!(repeated.text(), "run 2");
}

/// An agent whose tool is counted, and whose model fails once after it has called the tool.
fn booking(runs: &Arc<AtomicUsize>) -> Agent {
    let registry = Registry::new();
    let answers = AtomicUsize::new(0);
    define_model(&registry, "clerk", ModelInfo::default(), move |request, _, _| {
        let last = request.messages.last().unwrap();
        let is_booking = last.text() == "book";
        let has_failed = last.role() != Role::Tool || answers.fetch_add(1, Ordering::Relaxed) > 0;
        async move {
            let call = ToolRequest::new("book", json!({})).with_reference("1");
            match (is_booking, has_failed) {
                (true, _) => Ok(ModelResponse::new(Message::model(vec![Part::from(call)]))),
                (false, false) => Err(Error::unavailable("the model is not available").into()),
                (false, true) => Ok(ModelResponse::text_of("Done.")),
            }
        }
    })
    .unwrap();
    set_default_model(&registry, "clerk");
    let runs = Arc::clone(runs);
    let book = Tool::new("book", "Books.", move |_: Value, _: ToolContext| {
        runs.fetch_add(1, Ordering::Relaxed);
        async { Ok("booked") }
    });
    agent(&registry, "booking")
        .tool(book)
        .store(MemoryStore::new())
        .define()
        .unwrap()
}

#[tokio::test]
async fn a_turn_that_failed_after_a_round_is_continued_when_its_call_is_repeated() {
    let runs = Arc::default();
    let agent = booking(&runs);
    let base = say(&agent, "base", "hello").await.unwrap();
    let base: SnapshotId = base.snapshot_id().unwrap().clone();

    let failed = say(&agent, "a", "book").await;
    let continued = say(&agent, "a", "book").await.unwrap();
    let named = agent.chat().snapshot(base).context(keyed("a"));
    let repeated = named.run("book").await.unwrap();

    assert!(failed.is_err());
    assert_eq!(continued.text(), "Done.");
    assert_eq!(repeated.snapshot_id(), continued.snapshot_id());
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    let chat = agent.chat().resume("s").open().await.unwrap();
    let said = chat.messages().iter().filter(|message| message.text() == "book");
    assert_eq!(said.count(), 1);
}

#[tokio::test]
async fn a_call_whose_turn_failed_is_refused_once_the_conversation_has_continued() {
    let runs = Arc::default();
    let agent = booking(&runs);

    let failed = say(&agent, "a", "book").await;
    say(&agent, "b", "hello").await.unwrap();
    let repeated = say(&agent, "a", "book").await.unwrap_err();

    assert!(failed.is_err());
    assert_eq!(repeated.status(), Status::FailedPrecondition);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_repeated_call_streams_the_answer_and_the_details_of_its_turn() {
    let runs = Arc::default();
    let agent = counting(&runs);
    say(&agent, "base", "hello").await.unwrap();
    say(&agent, "a", "yes").await.unwrap();

    let context = keyed("a").with_extension(Arc::new(TurnDetails));
    let mut turn = agent
        .chat()
        .resume("s")
        .context(context)
        .stream("yes")
        .await
        .unwrap();
    let (mut text, mut start, mut end) = (String::new(), None, None);
    while let Some(chunk) = turn.next().await {
        let chunk = chunk.unwrap();
        text.push_str(&chunk.text());
        start = start.or_else(|| chunk.raw().turn_start.clone());
        end = end.or_else(|| chunk.turn_end().cloned());
    }

    assert_eq!(text, "run 2");
    assert_eq!(start.unwrap().position, 2);
    assert_eq!(end.unwrap().added.unwrap().messages.len(), 2);
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}
