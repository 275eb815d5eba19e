//! A turn of a prompt agent that fails keeps its finished rounds, and going on with it repeats nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentBuilder, AgentFinishReason, AgentInit, AgentInput, AgentOutput, AgentReply, Budget,
    FailedTurns, InlinePrompt, Limits, Session, Snapshot, SnapshotStatus, agent,
};
use everturn_ai::{NoInput, Part, Replay, Tool, ToolContext, ToolRequest, Usage};
use everturn_core::{Error, Status};
use everturn_testkit::{Gate, Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::prompt_support::{call, registry, said};
use crate::support::{all_chunks, snapshots};

/// A tool that runs once, counts its calls here and in the session, and fails as configured by `fails`.
fn book(calls: &Arc<AtomicUsize>, fails: fn(usize) -> Option<Error>) -> Tool {
    let calls = Arc::clone(calls);
    Tool::new("book", "Books.", move |_: NoInput, _: ToolContext| {
        let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            let session = Session::<Value>::current().unwrap();
            session.update_custom(|custom| *custom = json!({ "bookings": call }));
            match fails(call) {
                Some(error) => Err(error.into()),
                None => Ok(call),
            }
        }
    })
    .with_replay(Replay::Once)
}

fn never(_: usize) -> Option<Error> {
    None
}

fn look() -> Tool {
    Tool::new("look", "Looks.", |_: NoInput, _: ToolContext| async {
        Err::<(), _>(Error::unavailable("it is dark").into())
    })
    .with_replay(Replay::Idempotent)
}

fn desk(model: &ScriptedModel, store: &MemoryStore) -> AgentBuilder<Value, InlinePrompt> {
    agent(&registry(model), "desk").store(store.clone())
}

fn books(reference: &str) -> Reply {
    Reply::tools([call("book", reference, json!({}))])
}

/// Runs one input and returns the ends of its turns, and its output.
async fn run(agent: &Agent, init: AgentInit, input: impl Into<AgentInput>) -> (Vec<Value>, AgentOutput) {
    let mut connection = agent.connect(init);
    connection.send(input).await.unwrap();
    connection.close();
    let chunks = all_chunks(&mut connection).await;
    let ends = chunks.iter().filter_map(|chunk| chunk.turn_end.as_ref());
    let ends = ends.map(|end| json!({"snapshotId": end.snapshot_id, "finishReason": end.finish_reason}));
    (ends.collect(), connection.output().await.unwrap())
}

async fn latest(store: &MemoryStore) -> Option<Snapshot> {
    snapshots(store, &"s".into()).await.pop()
}

fn conversation(snapshot: &Snapshot) -> Vec<String> {
    said(&snapshot.state.as_ref().unwrap().messages)
}

fn custom(snapshot: &Snapshot) -> Option<&Value> {
    snapshot.state.as_ref().unwrap().custom.as_deref()
}

#[tokio::test]
async fn a_failed_turn_keeps_its_finished_rounds_its_error_and_what_it_used() {
    let (store, calls) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let busy = Reply::error(Error::unavailable("the model is busy"));
    let asks = everturn_ai::ModelResponse::new(everturn_ai::Message::model(Part::from(ToolRequest::new(
        "book",
        json!({}),
    ))));
    let asks = Reply::response(asks.with_usage(Usage {
        input_tokens: Some(7),
        ..Usage::default()
    }));
    let model = ScriptedModel::new().replies([asks, busy, "Booked.".into()]);
    let desk = desk(&model, &store).tool(book(&calls, never)).define().unwrap();

    let (ends, output) = run(&desk, AgentInit::session("s"), "a room").await;
    let failed = latest(&store).await.unwrap();
    let (_, done) = run(&desk, AgentInit::session("s"), AgentInput::default()).await;

    assert_eq!(
        ends,
        [json!({"snapshotId": failed.snapshot_id, "finishReason": "failed"})]
    );
    assert_eq!(output.snapshot_id.as_ref(), Some(&failed.snapshot_id));
    assert_eq!(output.finish_reason, Some(AgentFinishReason::Failed));
    assert_eq!(
        (output.message, output.artifacts, output.state),
        (None, None, None)
    );
    assert_eq!(failed.status, SnapshotStatus::Failed);
    assert_eq!(failed.error.as_ref().unwrap().status, Some(Status::Unavailable));
    assert_eq!(failed.created_at, failed.updated_at.unwrap());
    let used = failed.usage().unwrap();
    assert_eq!((used.input_tokens, used.model_calls, used.tool_calls), (7, 2, 1));
    let round = ["user: a room", "model: ask(book)", "tool: answer(1)"];
    assert_eq!(conversation(&failed), round);
    assert_eq!(custom(&failed), Some(&json!({"bookings": 1})));
    let done = desk.get_snapshot(done.snapshot_id.unwrap()).await.unwrap();
    assert_eq!(done.parent_id, Some(failed.snapshot_id));
    assert_eq!(conversation(&done)[..3], round);
    assert_eq!(conversation(&done)[3..], ["model: Booked."]);
    assert_eq!(done.usage().unwrap().model_calls, 3);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn half_a_round_is_not_kept_and_a_call_of_it_that_ended_is_not_made_again() {
    // Tried again, and with another message: what was booked is booked.
    for again in [AgentInput::default(), "please".into()] {
        let (store, calls) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
        let both = Reply::tools([call("book", "1", json!({})), call("look", "2", json!({}))]);
        let model = ScriptedModel::new().replies([both, "Booked.".into()]);
        let first = desk(&model, &store)
            .tool(book(&calls, never))
            .tool(look())
            .define()
            .unwrap();
        let seeing = Tool::new("look", "Looks.", |_: NoInput, _: ToolContext| async {
            Ok("light")
        });

        let (_, output) = run(&first, AgentInit::session("s"), "a room").await;
        let failed = latest(&store).await.unwrap();
        let second = desk(&model, &store).tool(book(&calls, never)).tool(seeing);
        let second = second.define().unwrap();
        let (_, done) = run(&second, AgentInit::session("s"), again).await;

        assert_eq!(output.finish_reason, Some(AgentFinishReason::Failed));
        assert_eq!(conversation(&failed), ["user: a room"]);
        assert_eq!(custom(&failed), None);
        assert_eq!(done.error, None);
        assert_eq!(calls.load(Ordering::SeqCst), 1, "booked twice");
        let done = second.get_snapshot(done.snapshot_id.unwrap()).await.unwrap();
        assert_eq!(
            custom(&done),
            Some(&json!({"bookings": 1})),
            "the booking is in the state"
        );
    }
}

#[tokio::test]
async fn a_turn_that_fails_before_the_model_is_asked_leaves_nothing() {
    let store = MemoryStore::new();
    let model = ScriptedModel::new().reply("Hello.");
    let desk = desk(&model, &store)
        .system("{{#if")
        .failed_turns(FailedTurns::Keep);
    let broken = desk.define();
    let unknown = agent(&registry(&ScriptedModel::new()), "unknown")
        .model("nobody")
        .store(store.clone())
        .define()
        .unwrap();

    let error = unknown.chat().resume("s").run("hi").await.unwrap_err();
    let empty = unknown
        .chat()
        .resume("s")
        .run(AgentInput::default())
        .await
        .unwrap_err();

    assert!(broken.is_err(), "a template that cannot be read is found at once");
    assert_eq!(AgentReply::<Value>::of(&error).unwrap().snapshot_id(), None);
    assert_eq!(empty.status(), Status::InvalidArgument);
    assert!(latest(&store).await.is_none());
}

#[tokio::test]
async fn a_turn_that_is_stopped_is_aborted_and_one_whose_provider_was_is_not() {
    let aborted = || Reply::error(Error::aborted("the provider stopped"));
    let late = || Reply::error(Error::deadline_exceeded("the provider is slow"));
    let insatiable = || ScriptedModel::new().otherwise(|_: &_| books("1"));
    let few = Limits::new().per_turn(Budget::new().model_calls(2));
    let cases: [(ScriptedModel, Limits, Status, SnapshotStatus); 4] = [
        (
            insatiable(),
            Limits::new(),
            Status::Aborted,
            SnapshotStatus::Aborted,
        ),
        (
            insatiable(),
            few,
            Status::ResourceExhausted,
            SnapshotStatus::Aborted,
        ),
        (
            ScriptedModel::new().replies([books("1"), aborted()]),
            Limits::new(),
            Status::Aborted,
            SnapshotStatus::Failed,
        ),
        (
            ScriptedModel::new().replies([books("1"), late()]),
            Limits::new(),
            Status::DeadlineExceeded,
            SnapshotStatus::Failed,
        ),
    ];
    for (model, limits, status, row) in cases {
        let (store, calls) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
        let desk = desk(&model, &store).limits(limits).max_rounds(2);
        let desk = desk.tool(book(&calls, never)).define().unwrap();

        let (ends, output) = run(&desk, AgentInit::session("s"), "a room").await;
        let in_chat = desk.chat().resume("t").run("a room").await;

        let kept = latest(&store).await.unwrap();
        assert_eq!(
            (kept.status, kept.error.as_ref().unwrap().status),
            (row, Some(status))
        );
        assert_eq!(
            ends,
            [json!({"snapshotId": kept.snapshot_id, "finishReason": row.as_str()})]
        );
        assert_eq!(output.finish_reason.unwrap().as_str(), row.as_str());
        assert_eq!(kept.finish_reason, output.finish_reason);
        let rounds = conversation(&kept).len() / 2;
        assert!(rounds == calls.load(Ordering::SeqCst).min(rounds) && rounds >= 1);
        assert!(in_chat.is_err());
    }
}

#[tokio::test]
async fn a_client_that_leaves_aborts_its_turn_and_the_finished_rounds_are_kept() {
    let (store, calls) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let model = ScriptedModel::new().replies([books("1"), Reply::never()]);
    let desk = desk(&model, &store).tool(book(&calls, never)).define().unwrap();

    let mut turn = Box::pin(desk.chat().resume("s").run("a room"));
    while model.calls().len() < 2 {
        tokio::select! {
            _ = &mut turn => panic!("the turn ended"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(turn);
    desk.idle().await;

    let kept = latest(&store).await.unwrap();
    assert_eq!(
        (kept.status, kept.finish_reason),
        (SnapshotStatus::Aborted, Some(AgentFinishReason::Aborted))
    );
    assert_eq!(kept.error.as_ref().unwrap().status, Some(Status::Cancelled));
    assert_eq!(
        conversation(&kept),
        ["user: a room", "model: ask(book)", "tool: answer(1)"]
    );
}

#[tokio::test]
async fn a_background_run_that_fails_or_is_stopped_holds_its_finished_turns_and_rounds() {
    for stops in [false, true] {
        let (store, calls) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
        let (gate, reached) = (Gate::new(), Gate::new());
        let hold = {
            let (gate, reached) = (gate.clone(), reached.clone());
            Tool::new("hold", "Holds.", move |_: NoInput, context: ToolContext| {
                let (gate, reached) = (gate.clone(), reached.clone());
                async move {
                    reached.open();
                    tokio::select! {
                        () = gate.pass() => Err::<(), _>(Error::unavailable("it broke").into()),
                        () = context.context().cancellation().cancelled() => Err(Error::cancelled("stopped").into()),
                    }
                }
            })
            .with_replay(Replay::Idempotent)
        };
        let holds = Reply::tools([call("hold", "2", json!({})), call("book", "3", json!({}))]);
        let model = ScriptedModel::new().replies(["Hello.".into(), books("1"), holds, "Done.".into()]);
        let desk = desk(&model, &store)
            .tool(book(&calls, never))
            .tool(hold)
            .define()
            .unwrap();

        let mut connection = desk.connect(AgentInit::session("s"));
        connection.send("hi").await.unwrap();
        connection
            .send(AgentInput::from("a room").detached())
            .await
            .unwrap();
        let output = connection.output().await.unwrap();
        let task = desk.task(output.snapshot_id.unwrap());
        reached.pass().await;
        if stops {
            task.abort().await.unwrap();
            desk.idle().await;
        }
        gate.open();
        desk.idle().await;
        let ended = task.poll().await.unwrap();
        let (_, done) = run(&desk, AgentInit::session("s"), AgentInput::default()).await;

        let expected = if stops {
            SnapshotStatus::Aborted
        } else {
            SnapshotStatus::Failed
        };
        assert_eq!(ended.status, expected);
        assert_eq!(
            conversation(&ended),
            [
                "user: hi",
                "model: Hello.",
                "user: a room",
                "model: ask(book)",
                "tool: answer(1)"
            ]
        );
        assert_eq!(done.finish_reason, Some(AgentFinishReason::Failed), "{done:?}");
        assert_eq!(
            calls.load(Ordering::SeqCst),
            2,
            "the call of the half round was made once"
        );
    }
}

#[tokio::test]
async fn a_client_that_keeps_the_state_gets_the_finished_rounds() {
    let calls = Arc::new(AtomicUsize::new(0));
    let model = ScriptedModel::new().replies([books("1"), books("2"), "Done.".into()]);
    let only_first = |call| (call > 1).then(|| Error::unavailable("closed"));
    let desk = agent(&registry(&model), "desk")
        .tool(book(&calls, only_first))
        .define()
        .unwrap();

    let (_, output) = run(&desk, AgentInit::default(), "a room").await;
    let state = output.state.unwrap();
    let (_, done) = run(&desk, AgentInit::state(state.clone()), AgentInput::default()).await;

    assert_eq!(
        said(&state.messages),
        ["user: a room", "model: ask(book)", "tool: answer(1)"]
    );
    assert_eq!(state.custom.as_deref(), Some(&json!({"bookings": 1})));
    assert_eq!(said(&done.state.unwrap().messages)[3..], ["model: Done."]);
}
