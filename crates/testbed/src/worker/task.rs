//! The task: a turn of five tool calls, each requested in a separate round, none of which may be repeated.

use std::time::Duration;

use everturn_agent::{AgentBuilder, InlinePrompt, SessionHandle, agent};
use everturn_ai::{
    Message, Model, ModelRequest, ModelResponse, ModelResponseChunk, Part, Replay, Role, Tool, ToolContext,
    ToolRequest, register_model,
};
use everturn_core::{Context, Emitter, Error, HandlerResult, Registry, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Effects;

/// The name of the worker's agent.
pub const AGENT: &str = "tasks";

/// The number of tool calls of a turn.
pub const STEPS: usize = 5;

/// The user's text that makes the task's tool wait until it is stopped.
const WAIT: &str = "wait";

pub(super) fn define(
    registry: &Registry,
    effects: &Effects,
    pace: Duration,
) -> Result<AgentBuilder<Value, InlinePrompt>> {
    let planner = Planner {
        effects: effects.clone(),
        pace,
    };
    register_model(registry, "planner", planner)?;
    Ok(agent(registry, AGENT)
        .model("planner")
        .system("You run tasks.")
        .max_rounds(20)
        .tool(step(effects.clone(), pace))
        .tool(wait(effects.clone())))
}

fn session() -> String {
    SessionHandle::current().map_or_else(String::new, |session| session.session_id().to_string())
}

/// Requests the next step until all are done. The next step depends only on the conversation.
struct Planner {
    effects: Effects,
    pace: Duration,
}

impl Model for Planner {
    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let messages: Vec<&Message> = request.messages.iter().collect();
        let asked = messages
            .iter()
            .rposition(|message| message.role() == Role::User)
            .ok_or_else(|| Error::invalid_argument("nobody said anything"))?;
        let done = messages[asked..]
            .iter()
            .flat_map(|message| message.content())
            .filter(|part| part.as_tool_response().is_some())
            .count();
        self.effects.note(&session(), &format!("model {done}"))?;
        tokio::time::sleep(self.pace).await;
        let progress = format!("{done} done. ");
        emitter.send(progress.as_str().into()).await?;
        let reply = match done {
            0 if messages[asked].text() == WAIT => call("wait", 0),
            STEPS => Message::model("All done."),
            done => call("step", done),
        };
        Ok(ModelResponse::new(reply))
    }
}

fn call(tool: &str, step: usize) -> Message {
    let request = ToolRequest::new(tool, json!({ "step": step })).with_reference(step.to_string());
    Message::model(Part::tool_request(request))
}

#[derive(Deserialize, JsonSchema)]
struct Step {
    step: usize,
}

fn step(effects: Effects, pace: Duration) -> Tool {
    Tool::new(
        "step",
        "Does one step of the task.",
        move |input: Step, _: ToolContext| {
            let effects = effects.clone();
            async move {
                effects.note(&session(), &format!("tool {}", input.step))?;
                tokio::time::sleep(pace).await;
                Ok(format!("step {} is done", input.step))
            }
        },
    )
    .with_replay(Replay::Once)
}

/// Records its drop, at any point of the future.
struct Farewell(Effects, String);

impl Drop for Farewell {
    fn drop(&mut self) {
        // A failure cannot be reported here; the test then misses the record.
        let _ = self.0.note(&self.1, "stopped");
    }
}

fn wait(effects: Effects) -> Tool {
    Tool::new(
        "wait",
        "Waits until it is stopped.",
        move |_: Step, context: ToolContext| {
            let effects = effects.clone();
            async move {
                effects.note(&session(), "tool 0")?;
                let _farewell = Farewell(effects, session());
                Err::<String, _>(context.context().ended().await.into())
            }
        },
    )
}
