//! Starting a turn.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::{AgentOutput, Unstored};
use everturn_core::{Context, Result, RuntimeError, Status};
use everturn_server::{ServedAgent, ServedTurn, TurnPlan, exposure_of};

use crate::fault::Fault;

/// The time to wait for the first chunk of an agent that does not report that it has accepted the input. A
/// turn that is rejected within this time gets an error response; a later rejection fails the stream.
const PATIENCE: Duration = Duration::from_millis(200);

/// Starts a turn. A turn that is not streamed runs to its end.
///
/// # Errors
/// The fault of a turn that was rejected before anything ran.
pub(crate) async fn start_turn(
    agent: &ServedAgent,
    plan: &TurnPlan,
    streams: bool,
    context: &Context,
) -> Result<ServedTurn, Fault> {
    let mut context = plan.context(context);
    if !plan.is_stored {
        context = context.with_extension(Arc::new(Unstored));
    }
    let turn = ServedTurn::start(agent, plan.init.clone(), plan.input.clone(), &context).await;
    let mut turn = turn.map_err(|outcome| refusal(&outcome, &context))?;
    if !streams || !turn.is_accepted(Some(PATIENCE)).await {
        let outcome = turn.run_to_end().await;
        if outcome.as_ref().map_or(true, is_refusal) {
            return Err(refusal(outcome, &context));
        }
    }
    Ok(turn)
}

/// Returns whether the input was rejected before the first model call.
fn is_refusal(output: &AgentOutput) -> bool {
    let status = output.error.as_ref().and_then(|error| error.status);
    let asked = output.usage.as_ref().is_some_and(|usage| usage.model_calls > 0);
    !asked
        && matches!(
            status,
            Some(Status::InvalidArgument | Status::FailedPrecondition | Status::NotFound)
        )
}

fn refusal(outcome: &Result<AgentOutput>, context: &Context) -> Fault {
    match outcome {
        Err(error) => Fault::of_error(error, exposure_of(context)),
        Ok(AgentOutput {
            error: Some(error), ..
        }) => Fault::failed_turn(error),
        Ok(_) => Fault::failed_turn(&RuntimeError::new(
            Status::Internal,
            "the agent ended without running the turn",
        )),
    }
}
