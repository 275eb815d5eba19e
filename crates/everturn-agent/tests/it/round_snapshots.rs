//! Snapshots from the middle of a turn: durable before the model sees the tools' answers, and resumable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use SnapshotEvent::{RoundEnd, TurnEnd};
use everturn_agent::store::{Detail, Scope, SessionStore};
use everturn_agent::{
    Agent, AgentInit, AgentInput, AgentReply, Snapshot, SnapshotEvent, SnapshotPolicy, SnapshotStatus, agent,
};
use everturn_ai::{Generate, NoInput, Tool, ToolContext};
use everturn_core::{Error, Registry, Status};
use everturn_testkit::{Gate, Reply, ScriptedModel};
use futures::FutureExt;
use serde_json::json;

use crate::prompt_support::{asked, invoke, registry, said};
use crate::support::{FaultyStore, snapshots};

fn rounds() -> SnapshotPolicy {
    SnapshotPolicy::on([RoundEnd, TurnEnd])
}

/// A chef whose oven counts how often it was heated.
fn chef(model: &ScriptedModel, store: &FaultyStore) -> (Agent, Arc<AtomicUsize>) {
    let heated = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heated);
    let oven = Tool::new("oven", "Heats.", move |_: NoInput, _: ToolContext| {
        let count = Arc::clone(&count);
        async move { Ok(count.fetch_add(1, Ordering::SeqCst) + 1) }
    });
    let agent = agent(&registry(model), "chef")
        .system("Cook.")
        .tool(oven)
        .store(store.clone())
        .snapshots(rounds())
        .define()
        .unwrap();
    (agent, heated)
}

fn events(snapshots: &[Snapshot]) -> Vec<SnapshotEvent> {
    snapshots.iter().map(|snapshot| snapshot.event.unwrap()).collect()
}

fn heat() -> Reply {
    Reply::tool("oven", json!({}))
}

#[tokio::test]
async fn the_model_sees_the_answers_after_they_are_durable() {
    let store = FaultyStore::default();
    let seen = store.clone();
    let model = ScriptedModel::new().reply(heat()).reply_with(move |_| {
        let (scope, session) = (Scope::default(), "s".into());
        let tip = seen.inner.latest(&scope, &session, Detail::Whole);
        let tip = tip.now_or_never().unwrap().unwrap().unwrap();
        said(&tip.state.unwrap().messages).join(" | ")
    });
    let (chef, _) = chef(&model, &store);

    let reply = chef.chat().resume("s").run("bake").await.unwrap();

    assert_eq!(reply.text(), "user: bake | model: ask(oven) | tool: answer(1)");
    assert_eq!(reply.snapshot_ids().len(), 2);
}

#[tokio::test]
async fn every_round_has_its_snapshot_and_the_turns_snapshot_continues_from_the_last() {
    let store = FaultyStore::default();
    let model = ScriptedModel::new().replies([heat(), heat(), "Done.".into()]);
    let (chef, _) = chef(&model, &store);

    chef.chat().resume("s").run("bake").await.unwrap();

    let snapshots = snapshots(&store, &"s".into()).await;
    let parents: Vec<_> = snapshots
        .iter()
        .skip(1)
        .map(|snapshot| snapshot.parent_id.clone())
        .collect();
    let ids: Vec<_> = snapshots
        .iter()
        .map(|snapshot| Some(snapshot.snapshot_id.clone()))
        .collect();
    assert_eq!(events(&snapshots), [RoundEnd, RoundEnd, TurnEnd]);
    assert_eq!(parents, ids[..2]);
    let last = snapshots[2].state.as_ref().unwrap();
    assert_eq!(
        said(&last.messages),
        [
            "user: bake",
            "model: ask(oven)",
            "tool: answer(1)",
            "model: ask(oven)",
            "tool: answer(2)",
            "model: Done."
        ]
    );
    let middle = snapshots[1].state.as_ref().unwrap();
    assert_eq!(last.messages.shared_prefix(&middle.messages), 5);
    assert_eq!(last.messages.lineage().id(), middle.messages.lineage().id());
}

#[tokio::test]
async fn an_interrupted_generation_is_continued_without_a_word_and_without_acting_twice() {
    let store = FaultyStore::default();
    let model = ScriptedModel::new().replies([heat(), Reply::error(Error::unavailable("gone"))]);
    let (broken, _) = chef(&model, &store);
    let failed = broken.chat().resume("s").run("bake").await.unwrap_err();
    let middle = AgentReply::<serde_json::Value>::of(&failed).unwrap();

    for init in [
        AgentInit::session("s"),
        AgentInit::snapshot(middle.snapshot_id().unwrap().clone()),
    ] {
        let model = ScriptedModel::new().reply("Done.");
        let (repaired, heated) = chef(&model, &store);
        let (_, output) = invoke(repaired.connect(init), AgentInput::default()).await;

        assert_eq!(output.error, None);
        assert_eq!(output.message.unwrap().text(), "Done.");
        assert_eq!(heated.load(Ordering::SeqCst), 0);
        assert_eq!(
            asked(&model.requests()[0]),
            [
                "system: Cook.",
                "user: bake",
                "model: ask(oven)",
                "tool: answer(1)"
            ]
        );
        let snapshot = repaired.latest_snapshot("s").await.unwrap();
        assert_eq!(snapshot.parent_id.as_ref(), middle.snapshot_id());
    }
}

#[tokio::test]
async fn a_conversation_continues_from_the_middle_of_a_turn() {
    let store = FaultyStore::default();
    let model = ScriptedModel::new().replies([heat(), Reply::error(Error::unavailable("gone"))]);
    chef(&model, &store)
        .0
        .chat()
        .resume("s")
        .run("bake")
        .await
        .unwrap_err();

    let model = ScriptedModel::new().reply("Cold.");
    let reply = chef(&model, &store)
        .0
        .chat()
        .resume("s")
        .run("stop")
        .await
        .unwrap();

    assert_eq!(reply.text(), "Cold.");
    assert_eq!(
        asked(&model.requests()[0]),
        [
            "system: Cook.",
            "user: bake",
            "model: ask(oven)",
            "tool: answer(1)",
            "user: stop"
        ]
    );
}

#[tokio::test]
async fn without_a_word_and_without_answers_there_is_no_turn() {
    let store = FaultyStore::default();
    let model = ScriptedModel::new().reply("Hello.");
    let (chef, _) = chef(&model, &store);
    chef.chat().resume("s").run("hello").await.unwrap();

    let (_, output) = invoke(chef.connect(AgentInit::session("s")), AgentInput::default()).await;

    assert_eq!(output.error.unwrap().status, Some(Status::InvalidArgument));
    model.assert_calls(1);
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_written_fails_the_turn_before_the_model_is_asked_again() {
    let store = FaultyStore::default();
    let model = ScriptedModel::new().replies([heat(), "never".into()]);
    let (chef, _) = chef(&model, &store);
    store.fail_saves(true);

    let error = chef.chat().resume("s").run("bake").await.unwrap_err();

    assert_eq!(error.status(), Status::ResourceExhausted);
    assert!(
        error.message().contains("the tools' answers could not be saved"),
        "{error}"
    );
    model.assert_calls(1);
}

#[tokio::test]
async fn a_background_run_has_its_one_snapshot() {
    let store = FaultyStore::default();
    let gate = Gate::new();
    let model = ScriptedModel::new().replies([heat().wait(&gate), heat(), "Done.".into()]);
    let (chef, _) = chef(&model, &store);

    let mut chat = chef.chat().resume("s").open().await.unwrap();
    let task = chat.detach("bake").await.unwrap();
    gate.open();
    let reply = task.wait().await.unwrap();

    let snapshots = snapshots(&store, &"s".into()).await;
    assert_eq!(reply.text(), "Done.");
    assert_eq!(snapshots.len(), 1);
    assert_eq!(snapshots[0].status, SnapshotStatus::Completed);
    assert_eq!(snapshots[0].state.as_ref().unwrap().messages.len(), 6);
}

#[tokio::test]
async fn messages_a_tool_generates_are_not_part_of_the_conversation() {
    let store = FaultyStore::default();
    let model = ScriptedModel::new().replies([
        Reply::tool("taste", json!({})),
        Reply::tool("spoon", json!({})),
        "salty".into(),
        "Done.".into(),
    ]);
    let registry: Registry = registry(&model);
    let inner = registry.clone();
    let spoon = Tool::new("spoon", "Spoons.", |_: NoInput, _: ToolContext| async {
        Ok("full")
    });
    let taste = Tool::new("taste", "Tastes.", move |_: NoInput, context: ToolContext| {
        let generate = Generate::new(&inner)
            .prompt("How does it taste?")
            .tool(spoon.clone())
            .context(context.context().clone());
        async move { Ok(generate.run().await?.text().into_owned()) }
    });
    let chef = agent(&registry, "chef")
        .tool(taste)
        .store(store.clone())
        .snapshots(rounds())
        .define()
        .unwrap();

    chef.chat().resume("s").run("taste it").await.unwrap();

    let snapshots = snapshots(&store, &"s".into()).await;
    assert_eq!(events(&snapshots), [RoundEnd, TurnEnd]);
    assert_eq!(
        said(&snapshots[0].state.as_ref().unwrap().messages),
        ["user: taste it", "model: ask(taste)", "tool: answer(\"salty\")"]
    );
}
