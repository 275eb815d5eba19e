//! Starting a turn.

use std::sync::Arc;

use everturn_agent::{AgentOutput, NewConversation};
use everturn_core::{Context, Error, Result, RuntimeError, Status};
use everturn_server::{ServedAgent, ServedTurn};

use crate::plan::Plan;

/// Starts a turn.
///
/// # Errors
/// The error of a turn that was rejected before the first model call.
pub(crate) async fn start_turn(
    agent: &ServedAgent,
    plan: &mut Plan,
    context: &Context,
) -> Result<ServedTurn> {
    let context = agent.handed_off(context.clone());
    let context = if plan.restarts {
        context.with_extension(Arc::new(NewConversation))
    } else {
        context
    };
    // Only the client's tools, answers and state can be rejected. Agents around a prompt report that they
    // accepted the input, and a replaced state is reported as a change.
    let input = std::mem::take(&mut plan.input);
    let is_checked = !input.tools.is_empty() || input.answers.is_some();
    let is_checked = is_checked && agent.is_prompted() || input.custom.is_some();
    let turn = ServedTurn::start(agent, std::mem::take(&mut plan.init), input, &context).await;
    let mut turn = turn.map_err(|outcome| refusal(&outcome))?;
    if is_checked && !turn.is_accepted(None).await {
        let outcome = turn.run_to_end().await;
        if outcome.as_ref().map_or(true, is_refusal) {
            return Err(refusal(outcome));
        }
    }
    Ok(turn)
}

/// Returns whether a turn failed before the first model call.
fn is_refusal(output: &AgentOutput) -> bool {
    let asked = output.usage.as_ref().is_some_and(|usage| usage.model_calls > 0);
    output.error.is_some() && !asked
}

fn refusal(outcome: &Result<AgentOutput>) -> Error {
    match outcome {
        Err(error) => error.clone(),
        Ok(AgentOutput {
            error: Some(RuntimeError { status, message, .. }),
            ..
        }) => Error::new(status.unwrap_or(Status::Unknown), message.clone()).with_public(),
        Ok(_) => Error::internal("the agent ended without running the turn"),
    }
}
