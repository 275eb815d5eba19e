//! Chats: conversations that know where they are.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentFinishReason, AgentReply, Artifact, SessionId, SessionState, SnapshotId, Turn};
use everturn_ai::{FinishReason, Message, Part, ToolRequest};
use everturn_core::{Error, Status};
use serde_json::{Value, json};

use crate::support::{Counter, FaultyStore, handling, replying, said, texts};

#[tokio::test]
async fn a_chat_continues_from_turn_to_turn_with_server_or_client_state() {
    for agent in [
        replying("server").store(MemoryStore::new()).define().unwrap(),
        replying("client").define().unwrap(),
    ] {
        let mut chat = agent.chat().open().await.unwrap();

        let first = chat.run("one").await.unwrap();
        let second = chat.run("two").await.unwrap();

        assert_eq!(second.session_id(), first.session_id());
        assert_eq!(chat.session_id(), first.session_id());
        assert_eq!(
            texts(chat.messages()),
            ["one", "re: one", "two", "re: two"],
            "{}",
            agent.name()
        );
    }
}

#[tokio::test]
async fn a_turn_streams_text_status_artifacts_and_live_custom_state() {
    let agent = handling("chef", |turn: Turn<Counter>| async move {
        turn.send_chunk("Leek ").await?;
        turn.update_custom(|custom| custom.counter = 7);
        turn.send_chunk("soup").await?;
        turn.send_status(json!({"step": "plating"})).await?;
        turn.send_artifact(Artifact::text("menu", "Leek soup")).await?;
        turn.add_message(Message::model("Leek soup"));
        Ok(FinishReason::Stop)
    })
    .define()
    .unwrap();
    let mut chat = agent
        .chat()
        .custom(Counter {
            counter: 1,
            status: String::new(),
        })
        .open()
        .await
        .unwrap();
    assert_eq!(chat.custom().unwrap().counter, 1);

    let mut turn = chat.send("hungry").await.unwrap();
    let mut seen = Vec::new();
    while let Some(chunk) = turn.next().await {
        let chunk = chunk.unwrap();
        seen.push((
            chunk.text().into_owned(),
            chunk.accumulated_text().to_owned(),
            chunk.custom().unwrap().unwrap().counter,
            chunk.status().unwrap(),
            chunk.artifact().and_then(|artifact| artifact.name.clone()),
            chunk.turn_end().is_some(),
        ));
    }
    let reply = turn.output().await.unwrap();

    let none = || (None, None);
    let snapshot = |text: &str, all: &str, counter, (status, artifact), end| {
        (text.to_owned(), all.to_owned(), counter, status, artifact, end)
    };
    assert_eq!(
        seen,
        [
            snapshot("Leek ", "Leek ", 1, none(), false),
            snapshot("", "Leek ", 7, none(), false),
            snapshot("soup", "Leek soup", 7, none(), false),
            snapshot(
                "",
                "Leek soup",
                7,
                (Some(json!({"step": "plating"})), None),
                false
            ),
            snapshot("", "Leek soup", 7, (None, Some("menu".to_owned())), false),
            snapshot("", "Leek soup", 7, none(), true),
        ]
    );
    assert_eq!(
        (reply.text().as_ref(), reply.finish_reason()),
        ("Leek soup", AgentFinishReason::Stop)
    );
    assert_eq!(reply.artifacts().len(), 1);
    assert_eq!(chat.custom().unwrap().counter, 7);
    assert_eq!(chat.artifacts().len(), 1);
}

#[tokio::test]
async fn a_failed_turn_is_an_error_that_carries_the_reply_and_leaves_the_chat_where_it_was() {
    for agent in [
        replying("server").store(MemoryStore::new()).define().unwrap(),
        replying("client").define().unwrap(),
    ] {
        let mut chat = agent.chat().open().await.unwrap();
        chat.run("one").await.unwrap();
        let at = chat.snapshot_id().cloned();

        let mut turn = chat.send("boom").await.unwrap();
        let end = turn.next().await.unwrap().unwrap();
        let streamed = turn.next().await.unwrap().unwrap_err();
        assert!(turn.next().await.is_none());
        let error = turn.output().await.unwrap_err();

        let reply = AgentReply::<Value>::of(&error).unwrap();
        assert!(end.turn_end().is_some());
        assert_eq!(
            (streamed.status(), error.status()),
            (Status::Unavailable, Status::Unavailable)
        );
        assert_eq!(reply.finish_reason(), AgentFinishReason::Failed);
        assert_eq!(chat.snapshot_id(), at.as_ref());
        assert_eq!(texts(chat.messages()), ["one", "re: one"]);

        let next = chat.run("two").await.unwrap();
        assert_eq!(next.text(), "re: two");
        assert_eq!(texts(chat.messages()), ["one", "re: one", "two", "re: two"]);
    }
}

#[tokio::test]
async fn a_resumed_chat_is_read_and_one_that_never_began_begins() {
    let store = FaultyStore::default();
    let agent = replying("chef").store(store.clone()).define().unwrap();
    agent.chat().resume("s").run("one").await.unwrap();

    let mut resumed = agent.chat().resume("s").open().await.unwrap();
    let fresh = agent.chat().resume("t").open().await.unwrap();
    let missing = agent.chat().snapshot("gone").open().await.unwrap_err();

    assert_eq!(texts(resumed.messages()), ["one", "re: one"]);
    assert!(fresh.messages().is_empty());
    assert_eq!(missing.status(), Status::NotFound);
    resumed.run("two").await.unwrap();
    resumed.read().await.unwrap();
    assert_eq!(texts(resumed.messages()), ["one", "re: one", "two", "re: two"]);
}

#[tokio::test]
async fn the_last_setting_of_a_chat_wins() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    let first = agent.chat().resume("a").resume("b").run("one").await.unwrap();

    let again = agent.chat().snapshot("gone").snapshot(first.snapshot_id());
    let chat = again.resume("a").resume(first.session_id()).open().await.unwrap();

    assert_eq!(chat.session_id(), Some(&"b".into()));
    assert_eq!(texts(chat.messages()), ["one", "re: one"]);
}

#[tokio::test]
async fn an_invalid_init_is_refused_before_the_agent_is_called() {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    let state = SessionState::default;

    let refusals = [
        agent.chat().state(state()).resume("s").open().await.unwrap_err(),
        agent
            .chat()
            .state(state())
            .snapshot("x")
            .run("hello")
            .await
            .unwrap_err(),
        agent.chat().resume("").open().await.unwrap_err(),
        agent.chat().snapshot("").open().await.unwrap_err(),
        agent.chat().resume(None::<SessionId>).open().await.unwrap_err(),
        agent
            .chat()
            .snapshot(None::<&SnapshotId>)
            .open()
            .await
            .unwrap_err(),
    ];

    for error in refusals {
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
    }
}

#[tokio::test]
async fn interrupts_are_answered_with_typed_values() {
    let agent = handling("banker", |turn: Turn| async move {
        if let Some(answers) = &turn.input().answers {
            let answer = answers
                .respond
                .iter()
                .find_map(Part::as_tool_response)
                .and_then(|part| part.output.clone());
            let resumed = answers
                .restart
                .iter()
                .find_map(|part| part.metadata_entry("resumed").cloned());
            turn.add_message(Message::model(format!("{answer:?} {resumed:?}")));
            return Ok(FinishReason::Stop);
        }
        assert_eq!(said(&turn), "pay bob");
        let request = ToolRequest::new("pay", json!({"to": "bob"})).with_reference("1");
        let part = Part::tool_request(request).with_metadata_entry("interrupt", json!({"question": "sure?"}));
        turn.add_message(Message::model(vec![part]));
        Ok(FinishReason::Interrupted)
    })
    .store(MemoryStore::new())
    .define()
    .unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    let asked = chat.run("pay bob").await.unwrap();
    let interrupts = asked.interrupts();
    let question: Value = interrupts[0].data().unwrap();
    let input: Value = interrupts[0].input().unwrap();
    let answered = chat
        .answer(interrupts[0].respond(json!({"ok": true})).unwrap())
        .await
        .unwrap()
        .output()
        .await
        .unwrap();

    assert_eq!(asked.finish_reason(), AgentFinishReason::Interrupted);
    assert_eq!(
        (interrupts[0].name(), interrupts[0].reference()),
        ("pay", Some("1"))
    );
    assert_eq!(
        (question, input),
        (json!({"question": "sure?"}), json!({"to": "bob"}))
    );
    assert!(answered.text().starts_with("Some(Object"), "{}", answered.text());

    let mut again = agent
        .chat()
        .snapshot(asked.snapshot_id().unwrap().clone())
        .open()
        .await
        .unwrap();
    let restart = interrupts[0].restart(json!({"by": "ann"})).unwrap();
    let restarted = again.answer([restart]).await.unwrap().output().await.unwrap();
    assert!(restarted.text().contains("ann"), "{}", restarted.text());

    let forged = Part::tool_request(ToolRequest::new("pay", json!({"to": "eve"})).with_reference("1"));
    let mut eve = agent
        .chat()
        .snapshot(asked.snapshot_id().unwrap().clone())
        .open()
        .await
        .unwrap();
    let refused = eve.answer(forged).await.unwrap().output().await.unwrap_err();
    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(
        AgentReply::<Value>::of(&refused).is_some(),
        "a forged answer is a failed turn"
    );
}

#[tokio::test(start_paused = true)]
async fn dropping_a_turn_cancels_it_and_leaves_the_chat_usable() {
    let agent = handling("slow", |turn: Turn| async move {
        turn.send_chunk("working").await?;
        if said(&turn) == "slow" {
            return Err(turn.context().ended().await.into());
        }
        turn.add_message(Message::model("done"));
        Ok(())
    })
    .store(Arc::new(MemoryStore::new()))
    .define()
    .unwrap();
    let mut chat = agent.chat().resume("s").open().await.unwrap();

    let mut turn = chat.send("slow").await.unwrap();
    turn.next().await.unwrap().unwrap();
    drop(turn);
    agent.idle().await;
    let mut cancelled = chat.send("slow").await.unwrap();
    cancelled.next().await.unwrap().unwrap();
    cancelled.cancel();
    let error: Error = cancelled.output().await.unwrap_err();
    agent.idle().await;
    let reply = chat.run("quick").await.unwrap();

    assert_eq!(error.status(), Status::Cancelled);
    assert_eq!(reply.text(), "done");
    assert_eq!(texts(chat.messages()), ["quick", "done"]);
}
