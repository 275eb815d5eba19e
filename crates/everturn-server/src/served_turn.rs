//! Turns of agents behind adapters.

mod coalesce;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use everturn_agent::{AgentInit, AgentInput, AgentOutput, AgentStreamChunk, TurnDetails, TurnStarted};
use everturn_core::{Context, Inputs, Result};
use tokio_util::sync::DropGuard;

use self::coalesce::coalesce;
use crate::ServedAgent;
use crate::correlation::keyed;
use crate::driven::Driven;
use crate::turn_name::TurnName;

/// The greatest number of chunks that are told one by one although they wait together. A reader that is further behind gets
/// their texts joined.
const FEW: usize = 8;

/// A turn of an agent behind an [adapter](crate::ProtocolAdapter), with its [details](TurnDetails). Reading its chunks drives it, and
/// dropping it cancels the work.
pub struct ServedTurn {
    driven: Driven<AgentStreamChunk, AgentOutput>,
    /// Chunks that were read while the turn started.
    read: VecDeque<AgentStreamChunk>,
    outcome: Option<Result<AgentOutput>>,
    started: TurnStarted,
    name: String,
    // Dropping the work ends the agent; cancelling reaches work that it handed to others.
    _cancel: DropGuard,
}

impl std::fmt::Debug for ServedTurn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ServedTurn")
            .field("started", &self.started)
            .finish_non_exhaustive()
    }
}

impl ServedTurn {
    /// Starts a turn and waits until the agent tells its start.
    ///
    /// # Errors
    /// The outcome of an invocation that was refused before its turn.
    pub async fn start(
        agent: &ServedAgent,
        init: AgentInit,
        input: AgentInput,
        context: &Context,
    ) -> Result<Self, Box<Result<AgentOutput>>> {
        let context = keyed(context.child()).with_extension(Arc::new(TurnDetails));
        let own_name = agent.names_turns_itself().then(TurnName::new);
        let context = match &own_name {
            Some(name) => name.noted(context),
            None => context,
        };
        let cancel = context.cancellation().clone().drop_guard();
        let action = agent.action().clone();
        let mut driven = Driven::begin(|emitter| async move {
            let inputs = Inputs::from_stream(futures::stream::iter([input]));
            action.call(init, inputs, emitter, context).await
        });
        let mut read = VecDeque::new();
        loop {
            match std::future::poll_fn(|cx| driven.poll_chunk(cx)).await {
                Some(AgentStreamChunk {
                    turn_start: Some(started),
                    ..
                }) => {
                    // A turn that hardly waits is told in one write.
                    driven.get_going().await;
                    let name = match &started.snapshot_id {
                        Some(id) => id.to_string(),
                        None => own_name
                            .unwrap_or_else(TurnName::new)
                            .in_session(&started.session_id),
                    };
                    return Ok(Self {
                        driven,
                        read,
                        outcome: None,
                        started,
                        name,
                        _cancel: cancel,
                    });
                }
                Some(chunk) => read.push_back(chunk),
                None => return Err(Box::new(outcome(&mut driven))),
            }
        }
    }

    /// Returns what the agent told about the turn when it started.
    pub fn started(&self) -> &TurnStarted {
        &self.started
    }

    /// Returns the [name](crate::turn_name) of the turn.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the first chunk after the start, at most this long; returns `false` if the turn ended without one.
    ///
    /// Agents that take tools of clients send a chunk when they have accepted the input, before a model is asked.
    pub async fn is_accepted(&mut self, patience: Option<Duration>) -> bool {
        let next = std::future::poll_fn(|cx| self.driven.poll_chunk(cx));
        let next = match patience {
            Some(patience) => tokio::time::timeout(patience, next).await,
            None => Ok(next.await),
        };
        match next {
            Ok(Some(chunk)) => {
                let is_end = chunk.turn_end.is_some();
                self.read.push_back(chunk);
                !is_end
            }
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Runs the turn to its end, keeps its chunks and returns the outcome.
    pub async fn run_to_end(&mut self) -> &Result<AgentOutput> {
        while let Some(chunk) = std::future::poll_fn(|cx| self.driven.poll_chunk(cx)).await {
            self.read.push_back(chunk);
        }
        let driven = &mut self.driven;
        self.outcome.get_or_insert_with(|| outcome(driven))
    }

    /// Waits for a chunk, and returns it with those that are ready too; none after the last.
    ///
    /// A chunk that comes alone is returned at once. Where many wait, neighbours that only add to one text are joined.
    pub async fn next(&mut self) -> Vec<AgentStreamChunk> {
        let mut ready: Vec<AgentStreamChunk> = self.read.drain(..).collect();
        if self.outcome.is_none() {
            std::future::poll_fn(|cx| {
                while let Poll::Ready(next) = self.driven.poll_chunk(cx) {
                    match next {
                        Some(chunk) => ready.push(chunk),
                        None => return Poll::Ready(()),
                    }
                    if ready.len() >= crate::driven::WAITING {
                        return Poll::Ready(());
                    }
                }
                if ready.is_empty() {
                    Poll::Pending
                } else {
                    Poll::Ready(())
                }
            })
            .await;
        }
        if ready.len() > FEW { coalesce(ready) } else { ready }
    }

    /// Waits for the end of the turn and returns its output, once.
    ///
    /// # Errors
    /// The error that the invocation failed with.
    pub async fn output(&mut self) -> Result<AgentOutput> {
        self.run_to_end().await;
        let driven = &mut self.driven;
        self.outcome.take().unwrap_or_else(|| outcome(driven))
    }
}

fn outcome(driven: &mut Driven<AgentStreamChunk, AgentOutput>) -> Result<AgentOutput> {
    driven
        .take_outcome()
        .unwrap_or_else(|| Err(everturn_core::Error::internal("the turn has no outcome")))
}
