//! The order of events in a turn, and the identities that hold it together.

use std::sync::{Arc, Mutex};

use everturn_agent::store::{Detail, MemoryStore, Scope, SessionStore};
use everturn_agent::{
    AgentFinishReason, AgentInit, AgentResult, AgentSession, SessionId, SnapshotStatus, Turn, TurnContext,
    custom_agent,
};
use everturn_ai::{FinishReason, Message};
use everturn_core::{Reason, Registry, Result, Status};

use crate::support;
use crate::support::{all_chunks, handling, json, replying, said, snapshots, texts};

#[tokio::test]
async fn a_turn_streams_its_chunks_then_is_saved_then_ends() {
    let store = Arc::new(MemoryStore::new());
    let agent = handling("chef", |turn: Turn| async move {
        turn.send_chunk("Leek ").await?;
        turn.send_chunk("soup").await?;
        turn.send_status("plating").await?;
        turn.add_message(Message::model("Leek soup"));
        Ok(FinishReason::Stop)
    })
    .store(Arc::clone(&store))
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::session("s"));
    connection.send("hungry").await.unwrap();
    let mut kinds = Vec::new();
    let mut saved_at_the_end = None;
    let mut turn = connection.receive();
    while let Some(chunk) = turn.next().await {
        kinds.extend(json(&chunk).as_object().unwrap().keys().cloned());
        if let Some(end) = chunk.turn_end {
            let id = end.snapshot_id.expect("a saved turn names its row");
            saved_at_the_end = store.get(&Scope::default(), &id, Detail::Whole).await.unwrap();
        }
    }
    let output = connection.output().await.unwrap();

    let snapshot = saved_at_the_end.expect("the snapshot is there the instant its id arrives");
    assert_eq!(kinds, ["modelChunk", "modelChunk", "status", "turnEnd"]);
    assert_eq!(texts(&snapshot.state.unwrap().messages), ["hungry", "Leek soup"]);
    assert_eq!(snapshot.status, SnapshotStatus::Completed);
    assert_eq!(output.snapshot_id, Some(snapshot.snapshot_id));
    assert_eq!(output.session_id, Some("s".into()));
    assert_eq!(output.state, None);
    assert_eq!(output.message.unwrap().text(), "Leek soup");
    assert_eq!(output.finish_reason, Some(AgentFinishReason::Stop));
}

#[tokio::test]
async fn the_turn_knows_its_snapshot_before_it_begins_and_the_next_turn_continues_from_it() {
    let store = Arc::new(MemoryStore::new());
    let places = Arc::new(Mutex::new(Vec::new()));
    let agent = {
        let places = Arc::clone(&places);
        handling("chef", move |turn: Turn| {
            let places = Arc::clone(&places);
            async move {
                let nested = TurnContext::current().expect("a turn is found from nested code");
                assert_eq!(nested.snapshot_id.as_ref(), turn.snapshot_id());
                places.lock().unwrap().push((
                    turn.snapshot_id().cloned(),
                    turn.parent_snapshot_id().cloned(),
                    turn.turn_index(),
                ));
                Ok(())
            }
        })
        .store(Arc::clone(&store))
        .define()
        .unwrap()
    };

    let mut connection = agent.connect(AgentInit::session("s"));
    let mut ended = Vec::new();
    for text in ["one", "two", "three"] {
        connection.send(text).await.unwrap();
        let mut turn = connection.receive();
        while let Some(chunk) = turn.next().await {
            ended.extend(chunk.turn_end.map(|end| end.snapshot_id));
        }
    }
    connection.output().await.unwrap();

    let places = places.lock().unwrap().clone();
    let saved = snapshots(store.as_ref(), &"s".into()).await;
    let ids: Vec<_> = saved
        .iter()
        .map(|snapshot| Some(snapshot.snapshot_id.clone()))
        .collect();
    assert_eq!(ids, ended);
    assert_eq!(
        ids,
        places.iter().map(|(id, _, _)| id.clone()).collect::<Vec<_>>()
    );
    assert_eq!(
        saved
            .iter()
            .map(|snapshot| snapshot.parent_id.clone())
            .collect::<Vec<_>>(),
        [None, ids[0].clone(), ids[1].clone()]
    );
    assert_eq!(
        places
            .iter()
            .map(|(_, parent, _)| parent.clone())
            .collect::<Vec<_>>(),
        [None, ids[0].clone(), ids[1].clone()]
    );
    assert_eq!(
        places.iter().map(|(_, _, index)| *index).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    assert_eq!(
        saved.iter().map(|snapshot| snapshot.index).collect::<Vec<_>>(),
        [Some(0), Some(1), Some(2)]
    );
    assert!(
        saved
            .iter()
            .all(|snapshot| snapshot.updated_at == Some(snapshot.created_at))
    );
}

#[tokio::test]
async fn without_a_store_the_client_keeps_the_state_and_turns_have_no_snapshots() {
    let agent = handling("chef", |turn: Turn| async move {
        assert_eq!(turn.snapshot_id(), None);
        support::reply(turn).await
    })
    .define()
    .unwrap();

    let first = agent.run_text("one").await.unwrap();
    let state = first.state().cloned().unwrap();
    let second = agent.chat().state(state).run("two").await.unwrap();

    let state = second.state().unwrap();
    assert_eq!(texts(&state.messages), ["one", "re: one", "two", "re: two"]);
    assert_eq!(state.session_id, first.session_id().cloned());
    assert_eq!(second.session_id(), first.session_id());
    assert_eq!(second.snapshot_id(), None);
}

#[tokio::test]
async fn inputs_sent_before_the_close_are_all_processed_in_order() {
    let agent = replying("chef").define().unwrap();

    let mut connection = agent.connect(AgentInit::default());
    let sender = connection.sender();
    let sending = tokio::spawn(async move {
        for text in ["one", "two", "three"] {
            sender.send(text.into()).await.unwrap();
        }
        sender.close();
    });
    let chunks = {
        let mut chunks = Vec::new();
        while let Some(chunk) = connection.next().await {
            chunks.push(chunk);
        }
        chunks
    };
    sending.await.unwrap();
    let output = connection.output().await.unwrap();

    assert_eq!(chunks.len(), 3);
    assert!(chunks.iter().all(|chunk| chunk.turn_end.is_some()));
    assert_eq!(texts(&output.state.unwrap().messages).len(), 6);
    assert_eq!(output.message.unwrap().text(), "re: three");
}

#[tokio::test]
async fn an_invocation_without_turns_is_a_success_without_a_snapshot() {
    let store = Arc::new(MemoryStore::new());
    let server = replying("server").store(Arc::clone(&store)).define().unwrap();
    let client = replying("client").define().unwrap();

    let kept_there = server.connect(AgentInit::session("s")).output().await.unwrap();
    let given_back = client.connect(AgentInit::default()).output().await.unwrap();

    assert_eq!(kept_there.session_id, Some("s".into()));
    assert_eq!((kept_there.snapshot_id, kept_there.finish_reason), (None, None));
    assert!(snapshots(store.as_ref(), &"s".into()).await.is_empty());
    assert_eq!(given_back.state.unwrap().session_id, given_back.session_id);
}

#[tokio::test]
async fn the_agent_functions_result_overrides_the_last_turns_but_not_its_snapshot() {
    let store = Arc::new(MemoryStore::new());
    let agent = custom_agent(&Registry::new(), "chef", |session: AgentSession| async move {
        session.run(support::reply).await?;
        session.add_message(Message::model("after the loop"));
        Ok(AgentResult {
            finish_reason: Some(AgentFinishReason::Other),
            ..session.result()
        })
    })
    .store(Arc::clone(&store))
    .define()
    .unwrap();

    let reply = agent.run_text("one").await.unwrap();

    let saved = snapshots(store.as_ref(), reply.session_id().unwrap()).await;
    assert_eq!(reply.finish_reason(), AgentFinishReason::Other);
    assert_eq!(reply.text(), "after the loop");
    assert_eq!(saved.len(), 1);
    assert_eq!(saved[0].finish_reason, Some(AgentFinishReason::Stop));
    assert_eq!(
        texts(&saved[0].state.as_ref().unwrap().messages),
        ["one", "re: one"]
    );
}

#[tokio::test]
async fn a_function_that_returns_early_leaves_queued_inputs_and_refuses_more() {
    let agent = custom_agent(&Registry::new(), "brief", |_: AgentSession| async move {
        Ok(AgentResult::default())
    })
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::default());
    connection.done().await;
    let refused = connection.send("too late").await.unwrap_err();
    let output = connection.output().await.unwrap();
    let again = connection.output().await.unwrap();

    assert_eq!(refused.status(), Status::FailedPrecondition);
    assert!(refused.is(Reason::ACTION_COMPLETED));
    assert_eq!(output, again);
    assert_eq!(texts(&output.state.unwrap().messages), Vec::<String>::new());
}

#[tokio::test]
async fn the_session_id_is_the_same_everywhere() {
    let store = Arc::new(MemoryStore::new());
    let agent = handling("chef", |turn: Turn| async move {
        let id: SessionId = turn.session_id().clone();
        turn.add_message(Message::model(id.as_str()));
        Ok(())
    })
    .store(Arc::clone(&store))
    .state_transform(|mut state, _| {
        state.session_id = Some("forged".into());
        Ok(Some(state))
    })
    .define()
    .unwrap();

    let reply = agent.run_text("who am I?").await.unwrap();
    let read = agent
        .get_snapshot(reply.snapshot_id().unwrap().clone())
        .await
        .unwrap();

    let snapshot = &snapshots(store.as_ref(), reply.session_id().unwrap()).await[0];
    assert_eq!(reply.text(), reply.session_id().unwrap().as_str());
    assert_eq!(snapshot.session_id, reply.session_id().cloned());
    assert_eq!(
        snapshot.state.as_ref().unwrap().session_id,
        reply.session_id().cloned()
    );
    assert_eq!(read.state.unwrap().session_id, reply.session_id().cloned());
}

#[tokio::test]
async fn a_turn_without_a_reason_has_none() -> Result<()> {
    let agent = handling("quiet", |turn: Turn| async move {
        assert!(!said(&turn).is_empty());
        Ok(())
    })
    .define()?;

    let mut connection = agent.connect(AgentInit::default());
    connection.send("hello").await?;
    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await?;

    assert_eq!(json(&chunks), serde_json::json!([{"turnEnd": {}}]));
    assert_eq!(output.finish_reason, None);
    Ok(())
}
