//! Agents that use all of Everturn's additions to Genkit's protocol. No conformance case uses them.

use everturn_agent::{
    AgentBuilder, AgentSession, Artifact, ClientPermissions, Custom, InlinePrompt, Session, SnapshotPolicy,
    Turn, custom_agent,
};
use everturn_ai::{FinishReason, FromToolContext, Message, NoInput, Tool, ToolContext};
use everturn_core::{HandlerResult, Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::prompted::{interrupt_tool, prompted};
use crate::Harness;

pub(super) fn define(harness: &mut Harness) -> Result<()> {
    let (registry, store) = (&harness.registry().clone(), harness.store());
    harness.define(
        cook(registry, "extendedAgentWithStore")
            .snapshots(SnapshotPolicy::always())
            .snapshot_id_in_messages()
            .store(store.clone()),
    )?;
    harness.define(cook(registry, "extendedAgent"))?;
    harness.define(
        critic(registry, "extendedPromptAgent")
            .snapshots(SnapshotPolicy::always())
            .store(store.clone()),
    )?;
    harness.define(approving(registry, "promptAgentWithApproval").store(store.clone()))?;
    harness.define(counter(registry, "promptAgentWithState").store(store))
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    dishes: u32,
}

/// The agent's status.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Progress {
    step: String,
}

impl Progress {
    fn at(step: &str) -> Self {
        Self {
            step: step.to_owned(),
        }
    }
}

/// The agent's output.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Bill {
    cents: u32,
}

/// An agent with its own status and output types, which changes its state, makes an artifact and has a prompt
/// input.
fn cook(registry: &Registry, name: &str) -> AgentBuilder<Kitchen, Custom<Kitchen>, Progress, Bill> {
    custom_agent(registry, name, |session: AgentSession<Kitchen>| async move {
        session.run(dish).await?;
        let cents = 400 * session.custom().dishes;
        Ok(session.result().with_output(Bill { cents }))
    })
    .status::<Progress>()
    .prompt_input(json!({ "tone": "kind" }))
}

async fn dish(turn: Turn<Kitchen>) -> HandlerResult<FinishReason> {
    turn.send_status(Progress::at("chopping")).await?;
    turn.update_custom(|kitchen| kitchen.dishes += 1);
    turn.send_chunk("Leek ").await?;
    turn.send_status(Progress::at("cooking")).await?;
    turn.send_chunk("soup.").await?;
    turn.send_artifact(Artifact::text("recipe", "Boil the leeks."))
        .await?;
    turn.add_message(Message::model("Leek soup."));
    Ok(FinishReason::Stop)
}

/// An agent around a prompt with an input, with a snapshot after every round of tools.
fn critic(registry: &Registry, name: &str) -> AgentBuilder<Value, InlinePrompt> {
    let taste = Tool::new("taste", "Tastes.", |_: NoInput, _: ToolContext| async move {
        Ok("salty")
    });
    prompted(registry, name)
        .system("You are {{tone}}.")
        .prompt_input(json!({ "tone": "kind" }))
        .tool(taste)
}

#[derive(Deserialize, JsonSchema)]
struct Sum {
    sum: u32,
}

#[derive(Deserialize)]
struct Approval {
    limit: u32,
}

/// An agent whose tool asks for an approval with a limit; a restart without an answer has the limit of ten.
fn approving(registry: &Registry, name: &str) -> AgentBuilder<Value, InlinePrompt> {
    let pay = Tool::new("pay", "Pays.", |input: Sum, cx: ToolContext| async move {
        let Some(Approval { limit }) = cx.answer_or_else(|| Approval { limit: 10 })? else {
            return Err(cx.interrupt(json!({ "approve": input.sum })).into());
        };
        Ok(format!("paid {} of {limit}", input.sum.min(limit)))
    });
    prompted(registry, name).tool(pay)
}

/// The state of the counting agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Counter {
    count: u32,
}

/// An agent with a tool that changes its state and a tool that interrupts, whose callers choose the output
/// schema.
fn counter(registry: &Registry, name: &str) -> AgentBuilder<Counter, InlinePrompt> {
    let count = Tool::new("countTool", "Counts.", |_: NoInput, cx: ToolContext| async move {
        let counter = Session::<Counter>::from_tool_context(&cx)?;
        Ok(counter.update_custom(|counter| {
            counter.count += 1;
            counter.count
        }))
    });
    prompted(registry, name)
        .custom::<Counter>()
        .tool(count.requiring::<Session<Counter>>())
        .tool(interrupt_tool())
        .client_permissions(ClientPermissions::none().output_schema())
}
