//! Reporting that a turn's input was accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_ai::{
    Middleware, ModelCall, ModelResponse, MultipartToolResponse, NextModel, NextTool, ToolCall, async_trait,
};
use everturn_core::HandlerResult;

use super::signals::Signals;
use crate::{AgentStreamChunk, CustomState, Turn, TurnDetails};

/// Sends an empty chunk before the first model or tool runs.
///
/// All checks that can refuse a client come before it, so a server can then choose the kind of its response.
#[derive(Clone)]
pub(super) struct AcceptedInput {
    signals: Signals,
    is_reported: Arc<AtomicBool>,
}

impl AcceptedInput {
    /// Returns `None` unless the caller requested the details of turns.
    pub(super) fn of<S: CustomState>(turn: &Turn<S>) -> Option<Self> {
        turn.context().extension::<TurnDetails>()?;
        Some(Self {
            signals: turn.signals().clone(),
            is_reported: Arc::default(),
        })
    }

    fn report(&self) {
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            self.signals.publisher().post(AgentStreamChunk::default());
        }
    }
}

#[async_trait]
impl Middleware for AcceptedInput {
    async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        self.report();
        Ok(next.run(call).await?)
    }

    async fn tool(&self, call: ToolCall, next: NextTool) -> HandlerResult<MultipartToolResponse> {
        self.report();
        Ok(next.run(call).await?)
    }
}
