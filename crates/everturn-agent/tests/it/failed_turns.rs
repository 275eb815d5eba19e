//! The session and the client after a failed turn.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentFinishReason, AgentInit, AgentReply, AgentResult, AgentSession, SessionState, Turn,
    custom_agent,
};
use everturn_ai::{History, Message};
use everturn_core::{Error, Registry, Status};
use everturn_testkit::elapse;
use serde_json::{Value, json};

use crate::support;
use crate::support::{FaultyStore, all_chunks, handling, json, replying, snapshots, texts};

#[tokio::test]
async fn a_failed_turn_is_an_output_with_the_last_good_state() {
    let agent = replying("chef").define().unwrap();
    let start = SessionState {
        messages: History::from_iter([Message::user("before")]),
        ..SessionState::default()
    };

    let mut connection = agent.connect(AgentInit::state(start));
    connection.send("one").await.unwrap();
    while connection
        .receive()
        .next()
        .await
        .is_some_and(|chunk| chunk.turn_end.is_none())
    {}
    connection.send("boom").await.unwrap();
    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await.unwrap();

    let error = output.error.unwrap();
    assert_eq!(json(&chunks), json!([{"turnEnd": {"finishReason": "failed"}}]));
    assert_eq!(output.finish_reason, Some(AgentFinishReason::Failed));
    assert_eq!(
        (error.status, error.message.as_str()),
        (Some(Status::Unavailable), "the oven is cold")
    );
    assert_eq!(
        texts(&output.state.clone().unwrap().messages),
        ["before", "one", "re: one"]
    );
    assert_eq!((output.message, output.artifacts), (None, None));

    let resumed = agent
        .chat()
        .state(output.state.unwrap())
        .run("two")
        .await
        .unwrap();
    assert_eq!(
        texts(&resumed.state().unwrap().messages),
        ["before", "one", "re: one", "two", "re: two"]
    );
}

#[tokio::test]
async fn a_failed_turn_writes_no_snapshot_and_points_at_the_last_good_one() {
    let store = FaultyStore::default();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    let fresh = agent.chat().resume("s").run("boom").await.unwrap_err();
    let good = agent.chat().resume("s").run("one").await.unwrap();

    let failed = agent.chat().resume("s").run("boom").await.unwrap_err();

    let reply = AgentReply::<Value>::of(&failed).unwrap();
    assert_eq!(failed.status(), Status::Unavailable);
    assert_eq!(reply.snapshot_id(), good.snapshot_id());
    assert_eq!(reply.session_id(), Some(&"s".into()));
    assert_eq!(reply.state(), None);
    assert_eq!(AgentReply::<Value>::of(&fresh).unwrap().snapshot_id(), None);
    assert_eq!(store.saves(), 1);
}

#[tokio::test]
async fn a_failure_outside_a_turn_is_a_failed_output_too() {
    let agent: Agent = custom_agent(&Registry::new(), "chef", |session: AgentSession| async move {
        session.run(support::reply).await?;
        Err(Error::permission_denied("the till is locked").into())
    })
    .define()
    .unwrap();

    let failed = agent.run_text("one").await.unwrap_err();

    let reply = AgentReply::<Value>::of(&failed).unwrap();
    assert_eq!(failed.status(), Status::PermissionDenied);
    assert_eq!(texts(&reply.state().unwrap().messages), ["one", "re: one"]);
}

#[tokio::test]
async fn a_panic_is_an_internal_failure_and_is_reported() {
    let agent = handling("clumsy", |turn: Turn| async move {
        assert!(support::said(&turn) != "boom", "dropped the pan");
        support::reply(turn).await
    })
    .define()
    .unwrap();

    let failed = agent.run_text("boom").await.unwrap_err();
    let well = agent.run_text("one").await.unwrap();

    assert_eq!(failed.status(), Status::Internal);
    assert!(
        failed.message().contains("panicked") && failed.message().contains("dropped the pan"),
        "{failed}"
    );
    assert_eq!(well.text(), "re: one");
}

#[tokio::test]
async fn a_public_error_keeps_its_public_words() {
    let agent = handling("chef", |_: Turn| async move {
        Err::<(), _>(
            Error::not_found("shelf 7, row 3")
                .with_public_message("no such dish")
                .into(),
        )
    })
    .define()
    .unwrap();

    let failed = agent.run_text("one").await.unwrap_err();

    assert_eq!(
        (failed.status(), failed.message()),
        (Status::NotFound, "no such dish")
    );
}

#[tokio::test]
async fn a_function_may_continue_after_a_failed_turn() {
    let store = Arc::new(MemoryStore::new());
    let agent = custom_agent(&Registry::new(), "stubborn", |session: AgentSession| async move {
        while session.run(support::reply).await.is_err() {}
        Ok(session.result())
    })
    .store(Arc::clone(&store))
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::session("s"));
    let sender = connection.sender();
    let sending = tokio::spawn(async move {
        for text in ["one", "boom", "two"] {
            sender.send(text.into()).await.unwrap();
        }
        sender.close();
    });
    let mut ends = Vec::new();
    while let Some(chunk) = connection.next().await {
        ends.push(chunk.turn_end.unwrap().finish_reason);
    }
    sending.await.unwrap();
    let output = connection.output().await.unwrap();

    let saved = snapshots(store.as_ref(), &"s".into()).await;
    let (stop, failed) = (Some(AgentFinishReason::Stop), Some(AgentFinishReason::Failed));
    assert_eq!(ends, [stop, failed, stop]);
    assert_eq!((output.finish_reason, output.error), (stop, None));
    assert_eq!(saved.len(), 2);
    assert_eq!(saved[1].parent_id.as_ref(), Some(&saved[0].snapshot_id));
    assert_eq!(
        texts(&saved[1].state.as_ref().unwrap().messages),
        ["one", "re: one", "two", "re: two"]
    );
}

#[tokio::test]
async fn a_turn_that_cannot_be_saved_fails_with_the_stores_status() {
    let store = FaultyStore::default();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    let good = agent.chat().resume("s").run("one").await.unwrap();

    store.fail_saves(true);
    let mut connection = agent.connect(AgentInit::session("s"));
    connection.send("two").await.unwrap();
    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await.unwrap();
    store.fail_saves(false);
    let resumed = agent.chat().resume("s").run("three").await.unwrap();

    let error = output.error.unwrap();
    assert_eq!(json(&chunks), json!([{"turnEnd": {"finishReason": "failed"}}]));
    assert_eq!(error.status, Some(Status::ResourceExhausted));
    assert!(error.message.contains("the disk is full"), "{}", error.message);
    assert_eq!(output.snapshot_id.as_ref(), good.snapshot_id());
    let snapshot = agent
        .get_snapshot(resumed.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    assert_eq!(
        texts(&snapshot.state.unwrap().messages),
        ["one", "re: one", "three", "re: three"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_function_that_drops_its_turn_loop_still_comes_to_an_end() {
    let agent = custom_agent(&Registry::new(), "fickle", |session: AgentSession| async move {
        let never = session.run(|_turn| std::future::pending::<everturn_core::HandlerResult<()>>());
        tokio::select! {
            result = never => result?,
            () = elapse(std::time::Duration::from_secs(1)) => {}
        }
        Ok(AgentResult::default())
    })
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::default());
    connection.send("one").await.unwrap();
    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await.unwrap();

    assert_eq!(json(&chunks), json!([{"turnEnd": {"finishReason": "failed"}}]));
    assert_eq!(output.error, None);
}
