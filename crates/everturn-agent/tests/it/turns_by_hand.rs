//! Turns that the agent's function takes and ends itself.

use std::sync::{Arc, Mutex};

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentFinishReason, AgentInit, AgentReply, AgentSession, Artifact, SnapshotEvent, SnapshotPolicy,
    TurnContext, custom_agent,
};
use everturn_ai::Message;
use everturn_core::{Error, Registry, Status};
use serde_json::{Value, json};

use crate::support::{FaultyStore, all_chunks, json, said, texts};

/// An agent that answers `re: <message>`, fails on `boom` and drops the turn on `drop`.
async fn looping(session: &AgentSession) -> everturn_core::HandlerResult<()> {
    while let Some(turn) = session.next_turn().await? {
        let text = said(&turn);
        match text.as_str() {
            "boom" => drop(turn.fail(Error::unavailable("the oven is cold")).await),
            "drop" => drop(turn),
            _ => {
                turn.send_status("answering").await?;
                turn.send_chunk("re").await?;
                turn.add_message(Message::model(format!("re: {text}")));
                turn.end(AgentFinishReason::Stop).await?;
            }
        }
    }
    Ok(())
}

fn by_hand() -> Agent {
    custom_agent(&Registry::new(), "by hand", |session: AgentSession| async move {
        looping(&session).await?;
        Ok(session.result())
    })
    .store(MemoryStore::new())
    .define()
    .unwrap()
}

/// The chunks of an invocation without the ids of its snapshots.
async fn chunks_of(agent: &Agent, inputs: &[&str]) -> Vec<Value> {
    let mut connection = agent.connect(AgentInit::session("s"));
    for input in inputs {
        connection.send(*input).await.unwrap();
    }
    let mut chunks: Vec<Value> = all_chunks(&mut connection).await.iter().map(json).collect();
    for end in chunks.iter_mut().filter_map(|chunk| chunk.get_mut("turnEnd")) {
        if let Some(id) = end.get_mut("snapshotId") {
            *id = "…".into();
        }
    }
    chunks
}

#[tokio::test]
async fn a_client_sees_the_same_as_of_a_handler() {
    let handled = custom_agent(&Registry::new(), "handled", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.send_status("answering").await?;
                turn.send_chunk("re").await?;
                turn.add_message(Message::model(format!("re: {}", said(&turn))));
                Ok(AgentFinishReason::Stop)
            })
            .await?;
        Ok(session.result())
    })
    .store(MemoryStore::new())
    .define()
    .unwrap();

    let of_hand = chunks_of(&by_hand(), &["a", "b"]).await;
    let of_handler = chunks_of(&handled, &["a", "b"]).await;

    assert_eq!(of_hand, of_handler);
    assert_eq!(
        of_hand
            .iter()
            .filter(|chunk| chunk.get("turnEnd").is_some())
            .count(),
        2
    );
}

#[tokio::test]
async fn each_turn_that_is_ended_is_a_snapshot() {
    let agent = by_hand();

    let mut chat = agent.chat().resume("s").open().await.unwrap();
    let first = chat.run("a").await.unwrap();
    chat.run("b").await.unwrap();

    let latest = agent.latest_snapshot("s").await.unwrap();
    assert_eq!(latest.parent_id.as_ref(), first.snapshot_id());
    assert_eq!(latest.finish_reason, Some(AgentFinishReason::Stop));
    assert_eq!(
        texts(&latest.state.unwrap().messages),
        ["a", "re: a", "b", "re: b"]
    );
}

#[tokio::test]
async fn a_turn_that_fails_or_is_dropped_is_reported_and_the_loop_may_continue() {
    let agent = by_hand();

    let chunks = chunks_of(&agent, &["boom", "drop", "a"]).await;

    let ends: Vec<&Value> = chunks.iter().filter_map(|chunk| chunk.get("turnEnd")).collect();
    assert_eq!(ends[0], &json!({"finishReason": "failed"}));
    assert_eq!(ends[1], &json!({"finishReason": "failed"}));
    assert_eq!(ends[2], &json!({"finishReason": "stop", "snapshotId": "…"}));
}

#[tokio::test]
async fn the_error_of_a_failed_turn_is_for_the_function_to_pass_on() {
    let agent = custom_agent(&Registry::new(), "passing", |session: AgentSession| async move {
        if let Some(turn) = session.next_turn().await? {
            return Err(turn.fail(Error::unavailable("the oven is cold")).await.into());
        }
        Ok(session.result())
    })
    .define()
    .unwrap();

    let failed = agent.run_text("a").await.unwrap_err();

    assert_eq!(
        (failed.status(), failed.message()),
        (Status::Unavailable, "the oven is cold")
    );
}

#[tokio::test]
async fn a_turn_that_cannot_be_saved_does_not_end_well() {
    let store = FaultyStore::default();
    store.fail_saves(true);
    let outcome = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&outcome);
    let agent = custom_agent(&Registry::new(), "unsaved", move |session: AgentSession| {
        let seen = Arc::clone(&seen);
        async move {
            while let Some(turn) = session.next_turn().await? {
                let ended = turn.end(AgentFinishReason::Stop).await;
                *seen.lock().unwrap() = Some(ended.as_ref().err().map(Error::status));
                ended?;
            }
            Ok(session.result())
        }
    })
    .store(Arc::new(store))
    .define()
    .unwrap();

    let failed = agent.run_text("a").await.unwrap_err();

    assert_eq!(*outcome.lock().unwrap(), Some(Some(failed.status())));
}

#[tokio::test]
async fn an_artifact_may_be_streamed_and_not_kept() {
    let agent = custom_agent(
        &Registry::new(),
        "previewing",
        |session: AgentSession| async move {
            while let Some(turn) = session.next_turn().await? {
                turn.stream_artifact(Artifact::text("preview", "a sketch"))
                    .await?;
                turn.send_artifact(Artifact::text("picture", "a painting"))
                    .await?;
                turn.end(()).await?;
            }
            Ok(session.result())
        },
    )
    .define()
    .unwrap();
    let mut chat = agent.chat().open().await.unwrap();
    let mut turn = chat.send("paint").await.unwrap();
    let mut streamed = Vec::new();

    while let Some(chunk) = turn.next().await {
        let chunk = chunk.unwrap();
        streamed.extend(chunk.artifact().and_then(|artifact| artifact.name.clone()));
    }
    let reply = turn.output().await.unwrap();

    assert_eq!(streamed, ["preview", "picture"]);
    let kept: Vec<_> = reply
        .artifacts()
        .iter()
        .map(|artifact| artifact.name.as_deref())
        .collect();
    assert_eq!(kept, [Some("picture")]);
    assert_eq!(reply.state().unwrap().artifacts.len(), 1);
}

#[tokio::test]
async fn the_function_knows_how_it_was_called_and_which_snapshots_it_made() {
    let agent = custom_agent(&Registry::new(), "knowing", |session: AgentSession| async move {
        while let Some(turn) = session.next_turn().await? {
            let init = serde_json::to_string(session.init())?;
            let made = session.snapshot_ids().len();
            turn.add_message(Message::model(format!("{init} {made}")));
            turn.end(()).await?;
        }
        Ok(session.result())
    })
    .snapshots(SnapshotPolicy::on([SnapshotEvent::TurnEnd]))
    .store(MemoryStore::new())
    .define()
    .unwrap();
    let mut connection = agent.connect(AgentInit::session("s").with_prompt_input(json!({"tone": "dry"})));

    connection.send("a").await.unwrap();
    connection.send("b").await.unwrap();
    let output = connection.output().await.unwrap();

    let reply: AgentReply = AgentReply::from_output(output).unwrap();
    assert_eq!(
        reply.text(),
        r#"{"sessionId":"s","promptInput":{"tone":"dry"}} 1"#
    );
    assert_eq!(reply.snapshot_ids().len(), 2);
}

#[tokio::test]
async fn code_in_the_turns_context_finds_the_turn() {
    let agent = custom_agent(&Registry::new(), "scoped", |session: AgentSession| async move {
        while let Some(turn) = session.next_turn().await? {
            let inside = async { TurnContext::current().map(|turn| turn.turn_index) };
            let found = turn.context().clone().scope(inside).await;
            turn.add_message(Message::model(format!("{found:?}")));
            turn.end(()).await?;
        }
        Ok(session.result())
    })
    .define()
    .unwrap();

    assert_eq!(agent.run_text("a").await.unwrap().text(), "Some(0)");
}
