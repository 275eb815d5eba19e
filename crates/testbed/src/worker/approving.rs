//! Approvals: in each session two tools ask, are approved and run, and neither may run twice.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::SessionStore;
use everturn_agent::{
    Agent, AgentInit, AgentInput, AgentOutput, Concurrency, Interrupt, Snapshot, SnapshotId, agent,
};
use everturn_ai::{
    Answers, Message, Model, ModelRequest, ModelResponse, ModelResponseChunk, Part, Role, Tool, ToolContext,
    ToolRequest, register_model,
};
use everturn_core::{Context, Emitter, Error, HandlerResult, Registry, Result};
use serde_json::{Value, json};

use super::Effects;

/// The tools that are approved.
pub const APPROVED: [&str; 2] = ["pay", "post"];

/// Defines the agent. Model and tools have the worker's duration.
///
/// # Errors
/// The error of the agent's definition.
pub fn approving(store: Arc<dyn SessionStore>, effects: &Effects, pace: Duration) -> Result<Agent> {
    let registry = Registry::new();
    register_model(&registry, "clerk", Clerk { pace })?;
    agent(&registry, "approving")
        .model("clerk")
        .tools(APPROVED.map(|name| tool(name, effects.clone(), pace)))
        // Two branches may start at one snapshot at the same time.
        .concurrency(Concurrency::Fork)
        .store(store)
        .define()
}

/// Requests both tools, and then ends.
struct Clerk {
    pace: Duration,
}

impl Model for Clerk {
    async fn generate(
        &self,
        request: ModelRequest,
        _emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        tokio::time::sleep(self.pace).await;
        let is_answered = request
            .messages
            .iter()
            .any(|message| message.role() == Role::Tool);
        if is_answered {
            return Ok(ModelResponse::text_of("Done."));
        }
        let call =
            |name| Part::tool_request(ToolRequest::new(name, json!({ "sum": 5 })).with_reference(name));
        Ok(ModelResponse::new(Message::model(APPROVED.map(call).to_vec())))
    }
}

fn tool(name: &'static str, effects: Effects, pace: Duration) -> Tool {
    Tool::dynamic(
        name,
        "Does it, if it is approved.",
        None,
        move |_, call: ToolContext| {
            let effects = effects.clone();
            async move {
                if call.answer::<Value>()?.is_none() {
                    return Err(call.interrupt("May it be done?").into());
                }
                let approval = call
                    .approval()
                    .ok_or_else(|| Error::internal("nobody was asked"))?;
                // The first session with the question, shared by its branches.
                let session = approval.session.unwrap_or_default();
                tokio::time::sleep(pace / 2).await;
                effects.note(&session, name)?;
                tokio::time::sleep(pace / 2).await;
                Ok(json!(format!("{name} is done")))
            }
        },
    )
}

/// Starts a session, whose tools ask, and returns the snapshot with the questions.
///
/// # Errors
/// The error of the turn.
pub async fn ask(agent: &Agent, session: &str) -> Result<SnapshotId> {
    let output = turn(agent, AgentInit::session(session), "go".into()).await?;
    let id = output.snapshot_id;
    id.ok_or_else(|| Error::internal(format!("the session has no snapshot: {:?}", output.error)))
}

/// Approves the calls of a snapshot, on a separate branch.
///
/// # Errors
/// The error of the turn.
pub async fn approve(agent: &Agent, asked: &Snapshot) -> Result<AgentOutput> {
    let messages = asked.state.iter().filter_map(|state| state.messages.last());
    let questions = messages.flat_map(|message| message.interrupts().filter_map(Interrupt::of));
    let answers: Answers = questions
        .map(|question| question.restart(json!({ "approved": true })))
        .collect::<Result<Vec<_>>>()?
        .into();
    let init = AgentInit::snapshot(asked.snapshot_id.clone());
    turn(agent, init, AgentInput::from(answers)).await
}

async fn turn(agent: &Agent, init: AgentInit, input: AgentInput) -> Result<AgentOutput> {
    let mut connection = agent.connect(init);
    connection.send(input).await?;
    connection.close();
    while connection.next().await.is_some() {}
    connection.output().await
}
