//! Turns of agents that protocol adapters serve.
//!
//! A turn runs without a task: reading its chunks drives it. The texts of a burst of chunks are coalesced, so
//! that a long answer costs no more than on a native route.

mod coalesce;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use everturn_agent::{
    AgentInit, AgentInput, AgentOutput, AgentStreamChunk, NewConversation, SessionId, SessionState, Snapshot,
    TurnDetails, TurnStarted,
};
use everturn_core::{Context, Inputs, Result};
use tokio_util::sync::DropGuard;

use self::coalesce::coalesce;
use super::ids::TurnName;
use crate::ServedAgent;
use crate::action_call::{PolledCall, WAITING};
use crate::correlation::keyed;

/// The maximum number of waiting chunks that are returned one by one. For a slower reader, their texts are
/// coalesced.
const FEW: usize = 8;

/// A turn of an agent behind a [protocol adapter](crate::ProtocolAdapter), with its [details](TurnDetails).
/// Reading its chunks drives the turn; dropping it cancels the turn.
pub struct ServedTurn {
    call: PolledCall<AgentStreamChunk, AgentOutput>,
    /// Chunks that were read while the turn started.
    read: VecDeque<AgentStreamChunk>,
    outcome: Option<Result<AgentOutput>>,
    started: TurnStarted,
    name: String,
    // Dropping the work ends the agent. Cancelling also reaches the tasks that it spawned.
    _cancel: DropGuard,
}

everturn_core::opaque_debug!(ServedTurn, started);

impl ServedTurn {
    /// Starts a turn and waits until the agent reports its start.
    ///
    /// # Errors
    /// The outcome of an invocation that was rejected before its turn.
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
        let mut call = PolledCall::start(|emitter| async move {
            let inputs = Inputs::from_stream(futures::stream::iter([input]));
            action.call(init, inputs, emitter, context).await
        });
        let mut read = VecDeque::new();
        loop {
            match std::future::poll_fn(|cx| call.poll_chunk(cx)).await {
                Some(AgentStreamChunk {
                    turn_start: Some(started),
                    ..
                }) => {
                    // A turn that hardly waits is sent in one write.
                    call.run_ahead().await;
                    let name = match &started.snapshot_id {
                        Some(id) => id.to_string(),
                        None => own_name
                            .unwrap_or_else(TurnName::new)
                            .in_session(&started.session_id),
                    };
                    return Ok(Self {
                        call,
                        read,
                        outcome: None,
                        started,
                        name,
                        _cancel: cancel,
                    });
                }
                Some(chunk) => read.push_back(chunk),
                None => return Err(Box::new(outcome(&mut call))),
            }
        }
    }

    /// Returns the agent's report about the start of the turn.
    pub fn started(&self) -> &TurnStarted {
        &self.started
    }

    /// Returns the [name](crate::turn_name) of the turn.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the first chunk after the start, at most this long. Returns `false` if the turn ended
    /// without one.
    ///
    /// Agents that accept tools from clients send a chunk when they have accepted the input, before the first
    /// model call.
    pub async fn is_accepted(&mut self, patience: Option<Duration>) -> bool {
        let next = std::future::poll_fn(|cx| self.call.poll_chunk(cx));
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

    /// Runs the turn to its end, buffers its chunks and returns the outcome.
    pub async fn run_to_end(&mut self) -> &Result<AgentOutput> {
        while let Some(chunk) = std::future::poll_fn(|cx| self.call.poll_chunk(cx)).await {
            self.read.push_back(chunk);
        }
        let call = &mut self.call;
        self.outcome.get_or_insert_with(|| outcome(call))
    }

    /// Waits for a chunk and returns it with all other ready chunks; an empty list after the last.
    ///
    /// A single chunk is returned at once. Where many are ready, neighbours that extend the same text are
    /// coalesced.
    pub async fn next(&mut self) -> Vec<AgentStreamChunk> {
        let mut ready: Vec<AgentStreamChunk> = self.read.drain(..).collect();
        if self.outcome.is_none() {
            std::future::poll_fn(|cx| {
                while let Poll::Ready(next) = self.call.poll_chunk(cx) {
                    match next {
                        Some(chunk) => ready.push(chunk),
                        None => return Poll::Ready(()),
                    }
                    if ready.len() >= WAITING {
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
        let call = &mut self.call;
        self.outcome.take().unwrap_or_else(|| outcome(call))
    }
}

fn outcome(call: &mut PolledCall<AgentStreamChunk, AgentOutput>) -> Result<AgentOutput> {
    call.take_outcome()
        .unwrap_or_else(|| Err(everturn_core::Error::internal("the turn has no outcome")))
}

/// The turn that answers a request.
#[derive(Debug, Default)]
pub struct TurnPlan {
    /// The start of the invocation.
    pub init: AgentInit,
    /// The input of the turn.
    pub input: AgentInput,
    /// The snapshot that the turn continues.
    pub base: Option<Snapshot>,
    /// Whether a new conversation replaces that of an existing session.
    pub restarts: bool,
    /// Whether the turn is stored in a session; if not, the client keeps the conversation.
    pub is_stored: bool,
}

impl TurnPlan {
    /// Plans a turn on a conversation that the client keeps.
    pub fn of_client(state: SessionState, input: AgentInput) -> Self {
        Self {
            init: AgentInit::state(state),
            input,
            ..Self::default()
        }
    }

    /// Plans a turn of a session that continues `base`, where `tip` is the latest snapshot. Any other base
    /// branches from it, and none begins a new conversation.
    pub fn in_session(
        session: SessionId,
        tip: Option<&Snapshot>,
        base: Option<Snapshot>,
        input: AgentInput,
    ) -> Self {
        let id = |snapshot: &Snapshot| snapshot.snapshot_id.clone();
        let is_tip = base.as_ref().map(id) == tip.map(id);
        Self {
            init: match &base {
                Some(base) if !is_tip => AgentInit::snapshot(id(base)),
                // Resuming by session id continues from the latest snapshot at the start of the turn.
                _ => AgentInit::session(session),
            },
            input,
            restarts: base.is_none() && tip.is_some(),
            base,
            is_stored: true,
        }
    }

    /// Returns the context in which the turn runs.
    pub fn context(&self, context: &Context) -> Context {
        let context = context.clone();
        if self.restarts {
            context.with_extension(Arc::new(NewConversation))
        } else {
            context
        }
    }
}
