//! Turns and runs that failed are kept: nothing that was committed is lost, and it can be tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::store::{MemoryStore, TIP_MOVED};
use everturn_agent::{
    Agent, AgentBuilder, AgentFinishReason, AgentInit, AgentInput, AgentReply, AgentStreamChunk, Concurrency,
    FailedTurns, Snapshot, SnapshotEvent, SnapshotId, SnapshotIds, SnapshotStatus, Timeline, Turn, agent,
};
use everturn_ai::{Message, Replay};
use everturn_core::{Error, Status};
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::prompt_support::{asked, registry};
use crate::support::{all_chunks, handling, json as wire, replying, snapshots, texts};

/// An agent that fails on its first turns and then answers the last message, whatever the input.
fn failing(failures: usize) -> AgentBuilder<Value> {
    let attempts = Arc::new(AtomicUsize::new(0));
    handling("cook", move |turn: Turn| {
        let attempt = attempts.fetch_add(1, Ordering::SeqCst);
        async move {
            if attempt < failures {
                turn.set_custom(json!({"half": "done"}));
                return Err(turn.committed(Error::unavailable("the oven is cold")).into());
            }
            answer(&turn);
            Ok(())
        }
    })
}

fn answer(turn: &Turn) {
    let last = turn.messages().last().map(|message| message.text().into_owned());
    turn.add_message(Message::model(format!("re: {}", last.unwrap_or_default())));
}

fn conversation(snapshot: &Snapshot) -> Vec<String> {
    texts(&snapshot.state.as_ref().unwrap().messages)
}

/// Runs a turn that fails and returns the snapshot that keeps it.
async fn fail(agent: &Agent, init: AgentInit, text: &str) -> Snapshot {
    let mut connection = agent.connect(init);
    connection.send(text).await.unwrap();
    connection.close();
    let output = connection.output().await.unwrap();
    assert_eq!(output.finish_reason, Some(AgentFinishReason::Failed));
    agent.get_snapshot(output.snapshot_id.unwrap()).await.unwrap()
}

async fn run(agent: &Agent, init: AgentInit, input: impl Into<AgentInput>) -> Snapshot {
    let mut connection = agent.connect(init);
    connection.send(input).await.unwrap();
    connection.close();
    let output = connection.output().await.unwrap();
    assert_eq!(output.error, None);
    agent.get_snapshot(output.snapshot_id.unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_first_message_is_kept_with_the_error_and_tried_again_in_the_chat() {
    let store = MemoryStore::new();
    let agent = failing(1).store(store.clone()).define().unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    let error = chat.run("leeks?").await.unwrap_err();
    let kept = AgentReply::<Value>::of(&error).unwrap().snapshot_id().cloned();
    let reply = chat.retry().await.unwrap().output().await.unwrap();

    let kept = agent.get_snapshot(kept.unwrap()).await.unwrap();
    assert_eq!(kept.status, SnapshotStatus::Failed);
    assert_eq!(kept.error.as_ref().unwrap().message, "the oven is cold");
    assert_eq!(kept.finish_reason, Some(AgentFinishReason::Failed));
    assert_eq!(kept.event, Some(SnapshotEvent::TurnEnd));
    assert_eq!(conversation(&kept), ["leeks?"]);
    assert_eq!(
        kept.state.as_ref().unwrap().custom.as_deref(),
        Some(&json!({"half": "done"})),
        "the turn committed it"
    );
    let done = agent
        .get_snapshot(reply.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    assert_eq!(done.parent_id, Some(kept.snapshot_id));
    assert_eq!(conversation(&done), ["leeks?", "re: leeks?"]);
    assert_eq!((kept.turn_index, done.turn_index), (Some(0), Some(0)));
    assert_eq!(texts(chat.messages()), ["leeks?", "re: leeks?"]);
}

#[tokio::test]
async fn a_prompt_agent_answers_the_message_that_was_kept() {
    let model = ScriptedModel::new()
        .reply(Reply::error(Error::unavailable("busy")))
        .reply("soup");
    let agent = agent(&registry(&model), "chef")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    agent.chat().resume("s").run("leeks?").await.unwrap_err();

    let mut chat = agent.chat().resume("s").open().await.unwrap();
    let reply = chat.retry().await.unwrap().output().await.unwrap();

    assert_eq!(reply.text(), "soup");
    assert_eq!(asked(&model.last_request().unwrap()), ["user: leeks?"]);
    assert_eq!(texts(chat.messages()), ["leeks?", "soup"]);
}

#[tokio::test]
async fn another_client_finds_the_failure_by_the_session_and_tries_again_or_continues() {
    let store = MemoryStore::new();
    let agent = failing(1).store(store).define().unwrap();
    let kept = fail(&agent, AgentInit::session("s"), "leeks?").await;

    let again = run(&agent, AgentInit::session("s"), AgentInput::default()).await;
    let beside = run(
        &agent,
        AgentInit::snapshot(kept.snapshot_id.clone()),
        "or carrots?",
    )
    .await;

    assert_eq!(conversation(&again), ["leeks?", "re: leeks?"]);
    assert_eq!(
        conversation(&beside),
        ["leeks?", "or carrots?", "re: or carrots?"]
    );
    assert_eq!(beside.parent_id, Some(kept.snapshot_id));
}

#[tokio::test]
async fn the_end_of_a_turn_that_is_kept_names_its_snapshot() {
    let agent = failing(1).store(MemoryStore::new()).define().unwrap();
    let mut connection = agent.connect(AgentInit::session("s"));
    connection.send("leeks?").await.unwrap();

    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await.unwrap();

    let ends: Vec<_> = chunks.iter().filter_map(end_of).collect();
    assert_eq!(
        ends,
        [json!({"snapshotId": output.snapshot_id, "finishReason": "failed"})]
    );
}

fn end_of(chunk: &AgentStreamChunk) -> Option<Value> {
    chunk.turn_end.as_ref().map(wire)
}

#[tokio::test]
async fn a_failed_turn_that_is_discarded_leaves_nothing() {
    let store = MemoryStore::new();
    let agent = failing(1)
        .failed_turns(FailedTurns::Discard)
        .store(store.clone())
        .define()
        .unwrap();

    let error = agent.chat().resume("s").run("leeks?").await.unwrap_err();

    assert_eq!(AgentReply::<Value>::of(&error).unwrap().snapshot_id(), None);
    assert!(snapshots(&store, &"s".into()).await.is_empty());
}

#[tokio::test]
async fn a_kept_failure_is_refused_by_an_agent_that_does_not_keep_any() {
    let store = MemoryStore::new();
    let keeping = failing(1).store(store.clone()).define().unwrap();
    let kept = fail(&keeping, AgentInit::session("s"), "leeks?").await;
    let strict = replying("strict")
        .failed_turns(FailedTurns::Discard)
        .store(store)
        .define()
        .unwrap();

    let refused = strict
        .chat()
        .snapshot(kept.snapshot_id)
        .run("two")
        .await
        .unwrap_err();

    assert_eq!(refused.status(), Status::FailedPrecondition);
}

#[tokio::test]
async fn a_turn_that_failed_and_is_kept_is_not_passed_over_by_one_that_began_before() {
    let store = MemoryStore::new();
    let (keeping, other) = (
        failing(1).store(store.clone()).define().unwrap(),
        replying("other").store(store.clone()).define().unwrap(),
    );
    let first = run(&other, AgentInit::session("s"), "one").await;
    let mut open = other.connect(AgentInit::session("s"));

    let kept = fail(&keeping, AgentInit::session("s"), "leeks?").await;
    open.send("two").await.unwrap();
    open.close();
    let refused = open.output().await.unwrap_err();

    assert_eq!(kept.parent_id.as_ref(), Some(&first.snapshot_id));
    assert!(refused.is(TIP_MOVED), "{refused:?}");
}

#[tokio::test]
async fn the_message_of_a_client_that_leaves_is_kept() {
    let store = MemoryStore::new();
    let agent = handling("endless", |turn: Turn| async move {
        turn.send_chunk("thinking").await?;
        turn.context().cancellation().cancelled().await;
        Err::<(), _>(turn.committed(Error::cancelled("nobody waits")).into())
    })
    .store(store.clone())
    .define()
    .unwrap();
    let mut connection = agent.connect(AgentInit::session("s"));
    connection.send("leeks?").await.unwrap();
    connection.next().await.unwrap();

    drop(connection);
    agent.idle().await;

    let kept = snapshots(&store, &"s".into()).await;
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].status, SnapshotStatus::Aborted);
    assert_eq!(conversation(&kept[0]), ["leeks?"]);
    assert_eq!(kept[0].error.as_ref().unwrap().status, Some(Status::Cancelled));
}

#[tokio::test]
async fn an_effect_of_a_turn_that_failed_is_not_repeated_when_it_is_tried_again() {
    let (orders, attempts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let agent = {
        let orders = Arc::clone(&orders);
        handling("waiter", move |turn: Turn| {
            let (orders, attempt) = (Arc::clone(&orders), attempts.fetch_add(1, Ordering::SeqCst));
            async move {
                let order: usize = turn
                    .effect("order", Replay::Once)
                    .run(|_| async move { Ok(orders.fetch_add(1, Ordering::SeqCst) + 1) })
                    .await?;
                if attempt == 0 {
                    return Err(turn.committed(Error::unavailable("the kitchen is closed")).into());
                }
                turn.add_message(Message::model(format!("order {order}")));
                Ok(())
            }
        })
        .store(MemoryStore::new())
        .define()
        .unwrap()
    };
    let kept = fail(&agent, AgentInit::session("s"), "soup").await;

    let done = run(
        &agent,
        AgentInit::snapshot(kept.snapshot_id),
        AgentInput::default(),
    )
    .await;

    assert_eq!(conversation(&done), ["soup", "order 1"]);
    assert_eq!(orders.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_failed_rewind_changes_nothing_and_is_kept_aside() {
    let store = MemoryStore::new();
    let steady = replying("steady")
        .timeline(Timeline::Linear)
        .store(store.clone())
        .define()
        .unwrap();
    let first = run(&steady, AgentInit::session("s"), "one").await;
    let second = run(&steady, AgentInit::session("s"), "two").await;
    let agent = failing(1)
        .timeline(Timeline::Linear)
        .store(store.clone())
        .define()
        .unwrap();

    let kept = fail(&agent, AgentInit::snapshot(first.snapshot_id.clone()), "leeks?").await;
    let before: Vec<SnapshotId> = ids(&store).await;
    let done = run(
        &agent,
        AgentInit::snapshot(kept.snapshot_id.clone()),
        AgentInput::default(),
    )
    .await;

    assert!(kept.orphaned);
    assert_eq!(before, [first.snapshot_id.clone(), second.snapshot_id]);
    assert_eq!(
        ids(&store).await,
        [first.snapshot_id, kept.snapshot_id, done.snapshot_id.clone()]
    );
    assert_eq!(conversation(&done), ["one", "re: one", "leeks?", "re: leeks?"]);
}

async fn ids(store: &MemoryStore) -> Vec<SnapshotId> {
    let kept = snapshots(store, &"s".into()).await;
    kept.into_iter().map(|snapshot| snapshot.snapshot_id).collect()
}

#[tokio::test]
async fn a_failure_has_a_new_id_even_where_snapshots_are_named_by_content() {
    let agent = failing(2)
        .snapshot_ids(SnapshotIds::ContentAddressed)
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let one = fail(&agent, AgentInit::session("s"), "leeks?").await;
    let two = fail(&agent, AgentInit::session("t"), "leeks?").await;
    let done = run(&agent, AgentInit::session("s"), AgentInput::default()).await;

    assert!(!one.snapshot_id.is_content_addressed() && one.snapshot_id != two.snapshot_id);
    assert!(done.snapshot_id.is_content_addressed());
}

#[tokio::test]
async fn a_function_that_continues_after_a_failure_continues_from_it() {
    let agent = failing(1)
        .store(MemoryStore::new())
        .concurrency(Concurrency::Queue)
        .define()
        .unwrap();
    let mut first = agent.connect(AgentInit::session("s"));
    first.send("leeks?").await.unwrap();
    first.close();
    let queued = agent.chat().resume("s").stream("carrots?").await.unwrap();
    let (failed, done) = tokio::join!(first.output(), queued.output());

    let kept = failed.unwrap().snapshot_id;
    let done = agent
        .get_snapshot(done.unwrap().snapshot_id().unwrap().clone())
        .await;
    let done = done.unwrap();
    assert_eq!(done.parent_id, kept);
    assert_eq!(conversation(&done), ["leeks?", "carrots?", "re: carrots?"]);
}

/// A run that fails or is aborted; returns its last snapshot.
async fn ended_run(agent: &Agent, abort: bool) -> Snapshot {
    let mut chat = agent.chat().resume("s").open().await.unwrap();
    chat.run("one").await.unwrap();
    let task = chat.detach(if abort { "wait" } else { "boom" }).await.unwrap();
    if abort {
        task.attach().unwrap().next().await.unwrap().unwrap();
        task.abort().await.unwrap();
    }
    agent.idle().await;
    task.poll().await.unwrap()
}

fn runner(store: MemoryStore) -> AgentBuilder<Value> {
    handling("runner", |turn: Turn| async move {
        match crate::support::said(&turn).as_str() {
            "boom" => return Err(turn.committed(Error::unavailable("the oven is cold")).into()),
            "wait" => {
                turn.add_message(Message::model("half of it"));
                turn.send_chunk("waiting").await?;
                turn.context().cancellation().cancelled().await;
                return Err(turn.committed(Error::cancelled("stopped")).into());
            }
            _ => answer(&turn),
        }
        Ok(())
    })
    .store(store)
}

#[tokio::test]
async fn a_run_that_ended_badly_holds_what_it_came_to_and_is_resumed_only_where_the_agent_allows_it() {
    for (abort, came_to) in [
        (false, vec!["one", "re: one", "boom"]),
        (true, vec!["one", "re: one", "wait", "half of it"]),
    ] {
        let store = MemoryStore::new();
        let strict = runner(store.clone())
            .failed_turns(FailedTurns::Discard)
            .define()
            .unwrap();
        let lenient = runner(store.clone()).define().unwrap();
        let ended = ended_run(&strict, abort).await;

        let by_id = strict.chat().snapshot(ended.snapshot_id.clone()).run("on").await;
        let by_session = strict.chat().resume("s").run("on").await;
        let resumed = run(&lenient, AgentInit::session("s"), "on").await;

        assert!(matches!(
            ended.status,
            SnapshotStatus::Failed | SnapshotStatus::Aborted
        ));
        assert_eq!(conversation(&ended), came_to);
        for refused in [by_id, by_session] {
            assert_eq!(refused.unwrap_err().status(), Status::FailedPrecondition);
        }
        assert_eq!(resumed.parent_id, Some(ended.snapshot_id));
        assert_eq!(conversation(&resumed).len(), came_to.len() + 2);
    }
}
