//! Tokens and times are in the reply, in the stream, in the session and with observers.

use std::sync::{Arc, Mutex};

use everturn_agent::store::{MemoryStore, SessionQuery};
use everturn_agent::{Agent, AgentFinishReason, EndedTurn, TurnObserver, UsageTotal, agent, observe_turns};
use everturn_ai::{ModelResponse, Tool, Usage};
use everturn_core::{Error, Registry, Status};
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

fn counted(reply: ModelResponse) -> Reply {
    Reply::response(reply.with_usage(Usage {
        input_tokens: Some(10),
        output_tokens: Some(3),
        cached_content_tokens: Some(4),
        thoughts_tokens: Some(2),
        ..Usage::default()
    }))
}

fn says(text: &str) -> Reply {
    counted(ModelResponse::new(everturn_ai::Message::model(text)))
}

fn cook(registry: &Registry, replies: impl IntoIterator<Item = Reply>) -> Agent {
    ScriptedModel::new()
        .replies(replies)
        .register(registry, "scripted")
        .unwrap();
    let stock = Tool::new("stock", "Stocks.", |_: Value, _| async { Ok("done") });
    agent(registry, "cook")
        .model("scripted")
        .tool(stock)
        .store(MemoryStore::new())
        .define()
        .unwrap()
}

fn without_times(usage: UsageTotal) -> UsageTotal {
    let mut json = serde_json::to_value(usage).unwrap();
    json["modelMs"] = 0.into();
    json["toolMs"] = 0.into();
    json["turnMs"] = 0.into();
    serde_json::from_value(json).unwrap()
}

fn usage(json: Value) -> UsageTotal {
    serde_json::from_value(json).unwrap()
}

#[tokio::test]
async fn a_reply_reports_what_its_turn_used_and_the_archive_what_the_session_has() {
    let registry = Registry::new();
    let asks = counted(ModelResponse::new(everturn_ai::Message::model(
        everturn_ai::Part::from(everturn_ai::ToolRequest::new("stock", json!({}))),
    )));
    let cook = cook(&registry, [asks, says("Soup."), says("Stew.")]);

    let mut chat = cook.chat().resume("s").open().await.unwrap();
    let first = chat.run("Soup?").await.unwrap();
    let second = cook.chat().resume("s").run("Stew?").await.unwrap();

    let turn = usage(
        json!({ "inputTokens": 20, "outputTokens": 6, "cachedContentTokens": 8, "thoughtsTokens": 4,
        "modelCalls": 2, "toolCalls": 1, "rounds": 2 }),
    );
    assert_eq!(without_times(first.usage()), turn);
    assert!(first.usage().model_time > std::time::Duration::ZERO);
    assert!(first.usage().tool_time > std::time::Duration::ZERO);
    assert_eq!(second.usage().input_tokens, 10);
    let sessions = cook
        .archive()
        .unwrap()
        .sessions(&SessionQuery::default())
        .await
        .unwrap();
    let session = sessions.items[0].latest.usage().unwrap();
    assert_eq!(session.input_tokens, 30);
    assert_eq!(session.model_calls, 3);
    // In the store, times are rounded to microseconds.
    let time = first.usage().model_time + second.usage().model_time;
    assert!(session.model_time.abs_diff(time) < std::time::Duration::from_micros(3));
}

#[tokio::test]
async fn a_background_run_adds_to_its_session() {
    let cook = cook(&Registry::new(), [says("Soup."), says("Stew.")]);
    let mut chat = cook.chat().resume("s").open().await.unwrap();
    chat.run("Soup?").await.unwrap();

    let task = chat.detach("Stew?").await.unwrap();
    task.wait().await.unwrap();

    let latest = cook.latest_snapshot("s").await.unwrap();
    assert_eq!(latest.usage().unwrap().output_tokens, 6);
}

/// An agent, how its turn ended, the status of its failure, and its input tokens.
type Turn = (String, AgentFinishReason, Option<Status>, u64);

#[derive(Default)]
struct Seen(Mutex<Vec<Turn>>);

impl TurnObserver for Seen {
    fn turn_ended(&self, turn: &EndedTurn<'_>) {
        self.0.lock().unwrap().push((
            turn.agent.to_owned(),
            turn.finish_reason,
            turn.failure,
            turn.usage.input_tokens,
        ));
    }
}

#[tokio::test]
async fn observers_hear_of_turns_that_succeed_and_that_fail() {
    let registry = Registry::new();
    let seen = Arc::new(Seen::default());
    let observer: Arc<dyn TurnObserver> = seen.clone();
    observe_turns(&registry, &observer);
    let down = Reply::error(Error::unavailable("the model server is down"));
    let cook = cook(&registry, [says("Soup."), down]);

    cook.run_text("Soup?").await.unwrap();
    cook.run_text("Stew?").await.unwrap_err();

    let seen = seen.0.lock().unwrap();
    assert_eq!(
        *seen,
        [
            ("cook".to_owned(), AgentFinishReason::Stop, None, 10),
            (
                "cook".to_owned(),
                AgentFinishReason::Failed,
                Some(Status::Unavailable),
                0
            ),
        ]
    );
}
