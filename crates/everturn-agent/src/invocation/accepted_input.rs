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
/// Everything that a client can be refused for is checked before that, so a server knows which answer to
/// begin.
#[derive(Clone)]
pub(super) struct AcceptedInput {
    signals: Signals,
    is_reported: Arc<AtomicBool>,
}

impl AcceptedInput {
    /// Returns `None` if the caller did not ask for the details of turns, as most do not.
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
