//! The turns that adapters plan from the conversations of their clients.

use std::sync::Arc;

use everturn_agent::{AgentInit, AgentInput, NewConversation, SessionId, SessionState, Snapshot};
use everturn_core::Context;

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
