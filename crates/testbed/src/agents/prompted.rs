//! Agents around a prompt.

use everturn_agent::{AgentBuilder, ClientPermissions, InlinePrompt, agent};
use everturn_ai::{NoInput, Tool, ToolContext};
use everturn_core::{Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Harness, ProgrammableModel};

pub(super) fn define(harness: &mut Harness) -> Result<()> {
    let (registry, store) = (&harness.registry().clone(), harness.store());
    harness.define(prompted(registry, "promptAgent"))?;
    let keeping = prompted(registry, "promptAgentWithStore");
    let keeping = keeping.client_permissions(ClientPermissions::none().tools());
    harness.define(keeping.store(store.clone()))?;
    harness.define(prompted(registry, "promptAgentWithTools").tool(test_tool()))?;
    let asking = prompted(registry, "promptAgentWithInterrupt").tool(interrupt_tool());
    harness.define(asking.store(store.clone()))?;
    let confirming = prompted(registry, "promptAgentWithRestartTool").tool(restart_tool());
    harness.define(confirming.store(store))
}

/// The system text of all prompt agents.
pub(super) const SYSTEM: &str = "You are part of a test.";

/// Defines an agent with a system text, which shows that a prompt's own messages never become part of a
/// conversation.
pub(super) fn prompted(registry: &Registry, name: &str) -> AgentBuilder<Value, InlinePrompt> {
    agent(registry, name)
        .model(ProgrammableModel::NAME)
        .system(SYSTEM)
}

fn test_tool() -> Tool {
    Tool::new(
        "testTool",
        "Says that it was called.",
        |_: NoInput, _: ToolContext| async move { Ok("tool called") },
    )
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only a person answers the question")]
struct Question {
    query: String,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only a person gives the answer")]
struct Answer {
    answer: String,
}

pub(super) fn interrupt_tool() -> Tool {
    Tool::interrupt::<Question, Answer>("interruptTool", "Asks a person.")
}

#[derive(Deserialize, JsonSchema)]
struct Deed {
    action: String,
}

#[derive(Serialize, JsonSchema)]
struct Done {
    result: String,
}

fn restart_tool() -> Tool {
    Tool::new(
        "restartTool",
        "Acts, once a person has confirmed.",
        |deed: Deed, context: ToolContext| async move {
            if !context.is_restarted() {
                return Err(context.interrupt(json!({ "confirm": deed.action })).into());
            }
            Ok(Done {
                result: format!("confirmed: {}", deed.action),
            })
        },
    )
}
