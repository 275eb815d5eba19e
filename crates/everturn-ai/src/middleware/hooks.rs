//! The trait with the three hooks.

use async_trait::async_trait;
use everturn_core::HandlerResult;

use super::{GenerateRound, ModelCall, NextModel, NextRound, NextTool, ToolCall};
use crate::{ModelResponse, MultipartToolResponse, Tool};

/// Code around the rounds, model calls and tool calls of a generation.
///
/// Each hook gets the call and the rest of the chain. It may change the call, run the rest once, several
/// times or not at all, and change its result. A hook that is not implemented passes through.
///
/// ```
/// use everturn_ai::{Middleware, ModelCall, ModelResponse, NextModel, async_trait};
/// use everturn_core::HandlerResult;
///
/// #[derive(Clone)]
/// struct Patience;
///
/// #[async_trait]
/// impl Middleware for Patience {
///     async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
///         match next.run(call.clone()).await {
///             Ok(response) => Ok(response),
///             Err(_) => Ok(next.run(call).await?),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Wraps every round, including the rounds inside it. A generation that runs tools twice has three
    /// rounds: the last one is the answer. Resolving an interrupt is its own round.
    ///
    /// Changes to the messages stay for later rounds.
    async fn generate(&self, round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        Ok(next.run(round).await?)
    }

    /// Wraps every model call.
    async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        Ok(next.run(call).await?)
    }

    /// Wraps every tool call; calls of one message run concurrently.
    ///
    /// To pause the generation return [`interrupt`](crate::interrupt) as an error.
    async fn tool(&self, call: ToolCall, next: NextTool) -> HandlerResult<MultipartToolResponse> {
        Ok(next.run(call).await?)
    }

    /// Returns tools that the model gets in addition to those of the request.
    fn tools(&self) -> Vec<Tool> {
        Vec::new()
    }
}
