//! Starting a turn.

use std::sync::Arc;

use everturn_agent::{AgentOutput, NewConversation};
use everturn_core::{Context, Error, Result, RuntimeError, Status};
use everturn_server::{ServedAgent, ServedTurn};

use crate::plan::Plan;

/// Starts a turn.
///
/// # Errors
/// The error of a turn that was refused before a model was asked.
pub(crate) async fn start(agent: &ServedAgent, plan: &mut Plan, context: &Context) -> Result<ServedTurn> {
    let context = agent.handed_off(context.clone());
    let context = if plan.begins_anew {
        context.with_extension(Arc::new(NewConversation))
    } else {
        context
    };
    // Only the tools, answers and state of a client can be refused. Agents around a prompt tell that they accepted the
    // input, and a state that differs is told as a change.
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

/// Returns whether a turn failed before a model was asked.
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
