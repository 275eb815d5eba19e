//! A turn under way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::{AgentInput, AgentOutput, AgentStreamChunk, TurnDetails, TurnStarted, Unstored};
use everturn_core::{Connection, Context, Result, RuntimeError, Status};

use crate::agents::Agent;
use crate::fault::Fault;
use crate::plan::{Plan, exposure};

/// How long a stream waits for the first chunk of an agent that does not tell that it has accepted the input. A turn that is
/// refused before that is answered with an error, a later one with a stream that fails.
const PATIENCE: Duration = Duration::from_millis(200);

/// A turn that has started. Dropping it cancels the work.
pub(crate) struct RunningTurn {
    connection: Connection<AgentInput, AgentOutput, AgentStreamChunk>,
    /// Chunks that were read while the turn started.
    read: VecDeque<AgentStreamChunk>,
    /// The end, if it was read while the turn started.
    ended: Option<Result<AgentOutput>>,
    pub(crate) started: TurnStarted,
}

impl RunningTurn {
    /// Starts a turn. If it is not to be streamed, it has ended.
    ///
    /// # Errors
    /// The fault of a turn that was refused before anything ran.
    pub(crate) async fn start(
        agent: &Agent,
        plan: &Plan,
        streams: bool,
        context: &Context,
    ) -> Result<Self, Fault> {
        let context = context.clone().with_extension(Arc::new(TurnDetails));
        let context = if plan.is_kept {
            context
        } else {
            context.with_extension(Arc::new(Unstored))
        };
        let mut connection = agent.action().connect_in(plan.init.clone(), &context);
        // A refused invocation takes no input; its output tells why.
        let _ = connection.send(plan.input.clone()).await;
        connection.close();
        let mut read = VecDeque::new();
        let started = loop {
            match connection.receive().next().await {
                Some(AgentStreamChunk {
                    turn_start: Some(started),
                    ..
                }) => break started,
                Some(chunk) => read.push_back(chunk),
                None => {
                    let output = connection.output().await;
                    return Err(refusal(output, &context));
                }
            }
        };
        let mut turn = Self {
            connection,
            read,
            ended: None,
            started,
        };
        if !streams || !turn.is_accepted().await {
            turn.run_to_end(&context).await?;
        }
        Ok(turn)
    }

    /// Waits for a sign that the turn was not refused; `false` if it ended without one.
    async fn is_accepted(&mut self) -> bool {
        match tokio::time::timeout(PATIENCE, self.connection.receive().next()).await {
            Ok(Some(chunk)) => {
                let is_end = chunk.turn_end.is_some();
                self.read.push_back(chunk);
                !is_end
            }
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Runs the turn to its end and keeps its chunks.
    async fn run_to_end(&mut self, context: &Context) -> Result<(), Fault> {
        while let Some(chunk) = self.connection.receive().next().await {
            self.read.push_back(chunk);
        }
        let output = self.connection.output().await;
        let is_refused = match &output {
            Err(_) => true,
            Ok(output) => is_refusal(output),
        };
        if is_refused {
            return Err(refusal(output, context));
        }
        self.ended = Some(output);
        Ok(())
    }

    /// Waits for the next chunk; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<AgentStreamChunk> {
        match self.read.pop_front() {
            Some(chunk) => Some(chunk),
            None if self.ended.is_some() => None,
            None => self.connection.receive().next().await,
        }
    }

    /// Waits for the output.
    pub(crate) async fn output(&mut self) -> Result<AgentOutput> {
        match self.ended.take() {
            Some(ended) => ended,
            None => self.connection.output().await,
        }
    }
}

/// Returns whether a turn failed by its input, before a model was asked.
fn is_refusal(output: &AgentOutput) -> bool {
    let status = output.error.as_ref().and_then(|error| error.status);
    let asked = output.usage.as_ref().is_some_and(|usage| usage.model_calls > 0);
    !asked
        && matches!(
            status,
            Some(Status::InvalidArgument | Status::FailedPrecondition | Status::NotFound)
        )
}

fn refusal(output: Result<AgentOutput>, context: &Context) -> Fault {
    match output {
        Err(error) => Fault::of_error(&error, exposure(context)),
        Ok(AgentOutput {
            error: Some(error), ..
        }) => Fault::failed_turn(&error),
        Ok(_) => Fault::failed_turn(&RuntimeError {
            status: Some(Status::Internal),
            message: "the agent ended without running the turn".into(),
            details: None,
        }),
    }
}
