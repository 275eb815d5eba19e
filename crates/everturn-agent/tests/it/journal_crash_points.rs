//! A turn of several tools that dies at any point runs again, and no effect happens twice.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentFinishReason, AgentInput, Artifact, Interrupt, Session, SessionState, agent,
};
use everturn_ai::{Answers, Message, ModelResponse, Part, Replay, Tool, ToolContext, ToolRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::journal_support::{journals, latest, registry, turn};
use crate::support::{FaultyStore, Fuse, World};

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    done: Vec<String>,
}

const REPLIES: usize = 3;
const ONCE: [&str; 3] = ["pay", "post", "sign"];

/// Five tools at once, one more, and an answer.
fn answer(rounds: usize) -> ModelResponse {
    let ask = |names: &[&str]| {
        let request = |name: &&str| Part::from(ToolRequest::new(*name, json!({})).with_reference(*name));
        ModelResponse::new(Message::model(names.iter().map(request).collect::<Vec<_>>()))
    };
    match rounds {
        0 => ask(&["pay", "post", "fetch", "order", "add"]),
        1 => ask(&["sign"]),
        _ => ModelResponse::text_of("All done."),
    }
}

fn tool(name: &'static str, replay: Replay, fuse: &Fuse, world: &Arc<World>) -> Tool {
    let (fuse, world) = (fuse.clone(), Arc::clone(world));
    Tool::dynamic(name, "Does it.", None, move |_, cx: ToolContext| {
        let (fuse, world) = (fuse.clone(), Arc::clone(&world));
        async move {
            fuse.step().await;
            world.count(name);
            world.saw_key(name, cx.effect_id().as_str());
            fuse.step().await;
            if let Some(session) = Session::<Kitchen>::current() {
                session.update_custom(|kitchen| kitchen.done.push(name.to_owned()));
                session.add_artifact(Artifact::text(name, "receipt"));
            }
            fuse.step().await;
            Ok(json!(format!("{name} is done")))
        }
    })
    .with_replay(replay)
}

/// The agent as one process has it.
fn cook(store: &MemoryStore, fuse: &Fuse, world: &Arc<World>) -> Agent<Kitchen> {
    agent(&registry(fuse, world, answer), "cook")
        .custom::<Kitchen>()
        .tools([
            tool("pay", Replay::Once, fuse, world),
            tool("post", Replay::Once, fuse, world),
            tool("fetch", Replay::Idempotent, fuse, world),
            tool("order", Replay::Keyed, fuse, world),
            tool("add", Replay::Pure, fuse, world),
            tool("sign", Replay::Once, fuse, world),
        ])
        .store(FaultyStore::shared(store, fuse, world))
        .define()
        .unwrap()
}

/// Tells the truth about every call whose outcome is unknown.
fn answers(output: &everturn_agent::AgentOutput, world: &World) -> Vec<Part> {
    let message = output.message.as_ref().unwrap();
    let interrupts = message.interrupts().filter_map(Interrupt::of);
    interrupts
        .map(|interrupt| {
            assert!(interrupt.is_outcome_unknown());
            match world.counted(interrupt.name()) {
                0 => interrupt.restart(()).unwrap(),
                _ => interrupt
                    .respond(format!("{} is done", interrupt.name()))
                    .unwrap(),
            }
        })
        .collect()
}

/// The messages, without those that only an interrupted turn adds.
fn said(state: &SessionState) -> Vec<String> {
    let part = |part: &Part| {
        let asked = part.as_tool_request().map(|request| request.name.clone());
        let answered = part
            .as_tool_response()
            .and_then(|response| response.output.clone());
        format!("{:?}{asked:?}{answered:?}", part.as_text())
    };
    let line = |message: &Message| message.content().iter().map(part).collect::<String>();
    state.messages.iter().map(line).collect()
}

fn sorted(state: &SessionState) -> Vec<String> {
    let kitchen: Kitchen = serde_json::from_value(state.custom.as_deref().unwrap().clone()).unwrap();
    let mut done = kitchen.done;
    done.sort();
    done
}

fn artifacts(state: &SessionState) -> Vec<&str> {
    let mut names: Vec<&str> = state.artifacts.iter().filter_map(|a| a.given_name()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_turn_killed_at_any_point_repeats_no_effect_and_ends_with_the_same_result() {
    let (store, world, fuse) = (MemoryStore::new(), Arc::new(World::default()), Fuse::never());
    let output = fuse
        .process(turn(&cook(&store, &fuse, &world), "go"))
        .unwrap()
        .unwrap();
    let expected = latest(&store).unwrap().state.unwrap();
    assert_eq!(output.message.unwrap().text(), "All done.");
    assert_eq!(
        sorted(&expected),
        ["add", "fetch", "order", "pay", "post", "sign"]
    );
    assert_eq!(journals(&store), 0);

    let mut unknown = 0;
    for point in 0.. {
        let (store, world, fuse) = (
            MemoryStore::new(),
            Arc::new(World::default()),
            Fuse::burning_at(point),
        );
        if fuse.process(turn(&cook(&store, &fuse, &world), "go")).is_some() {
            assert!(point > 40, "only {point} points were looked at");
            assert!(unknown > 5, "only {unknown} points left an outcome unknown");
            return;
        }
        let (replied, asked) = (world.counted("replied"), world.counted("model"));

        // A committed turn has ended; any other is retried by another process.
        let mut interrupted = false;
        if latest(&store).is_none() {
            let fuse = Fuse::never();
            let mut output = fuse
                .process(turn(&cook(&store, &fuse, &world), "go"))
                .unwrap()
                .unwrap();
            while output.finish_reason == Some(AgentFinishReason::Interrupted) {
                interrupted = true;
                unknown += 1;
                let given = Answers::from(answers(&output, &world));
                output = fuse
                    .process(turn(&cook(&store, &fuse, &world), AgentInput::answers(given)))
                    .unwrap()
                    .unwrap();
            }
            assert_eq!(
                output.finish_reason,
                Some(AgentFinishReason::Stop),
                "{point}: {output:?}"
            );
            assert_eq!(world.counted("model") - asked, REPLIES - replied, "at {point}");
        }

        let state = latest(&store).unwrap().state.unwrap();
        assert_eq!(said(&state), said(&expected), "at {point}");
        for name in ONCE {
            assert_eq!(world.counted(name), 1, "{name} at {point}");
        }
        assert_eq!(world.keys("order"), 1, "at {point}");
        if !interrupted {
            assert_eq!(sorted(&state), sorted(&expected), "at {point}");
            assert_eq!(artifacts(&state), artifacts(&expected), "at {point}");
        }
        assert_eq!(journals(&store), 0, "at {point}");
    }
}
