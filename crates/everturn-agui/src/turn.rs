//! A turn under way.

use std::collections::VecDeque;
use std::sync::Arc;

use everturn_agent::{AgentInput, AgentOutput, AgentStreamChunk, BeginAnew, TurnDetails, TurnStarted};
use everturn_core::{Connection, Context, Error, Exposure, Result, RuntimeError, Status};
use everturn_server::ServedAgent;

use crate::plan::Plan;

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
    /// Starts a turn.
    ///
    /// # Errors
    /// The error of a turn that was refused before a model was asked.
    pub(crate) async fn start(agent: &ServedAgent, plan: &Plan, context: &Context) -> Result<Self> {
        let context = agent
            .handed_off(context.clone())
            .with_extension(Arc::new(TurnDetails));
        let context = if plan.begins_anew {
            context.with_extension(Arc::new(BeginAnew))
        } else {
            context
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
                None => return Err(refusal(connection.output().await)),
            }
        };
        let mut turn = Self {
            connection,
            read,
            ended: None,
            started,
        };
        // Only the tools, answers and state of a client can be refused. Agents that take tools tell that they accepted the
        // input, and a state that differs is told as a change.
        let is_checked = !plan.input.tools.is_empty() || plan.input.answers.is_some();
        if is_checked && agent.takes_additions() || plan.input.custom.is_some() {
            turn.settle_in().await?;
        }
        Ok(turn)
    }

    /// Waits for a sign that the turn was not refused.
    async fn settle_in(&mut self) -> Result<()> {
        // The agent sends a chunk when it has accepted the input, before its model is asked.
        if let Some(chunk) = self.connection.receive().next().await {
            let is_end = chunk.turn_end.is_some();
            self.read.push_back(chunk);
            if !is_end {
                return Ok(());
            }
        }
        while let Some(chunk) = self.connection.receive().next().await {
            self.read.push_back(chunk);
        }
        let output = self.connection.output().await;
        let is_refused = match &output {
            Ok(output) => is_refusal(output),
            Err(_) => true,
        };
        if is_refused {
            return Err(refusal(output));
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

/// Returns whether a turn failed before a model was asked.
fn is_refusal(output: &AgentOutput) -> bool {
    let asked = output.usage.as_ref().is_some_and(|usage| usage.model_calls > 0);
    output.error.is_some() && !asked
}

fn refusal(output: Result<AgentOutput>) -> Error {
    match output {
        Err(error) => error,
        Ok(AgentOutput {
            error: Some(RuntimeError { status, message, .. }),
            ..
        }) => Error::new(status.unwrap_or(Status::Unknown), message).with_public(),
        Ok(_) => Error::internal("the agent ended without running the turn"),
    }
}

/// Returns how much of an error the caller may see.
pub(crate) fn exposure(context: &Context) -> Exposure {
    context
        .extension::<Exposure>()
        .map_or(Exposure::Public, |exposure| *exposure)
}
