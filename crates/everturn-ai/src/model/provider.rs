//! The trait that a provider implements.

use std::future::Future;

use everturn_core::{Context, Emitter, HandlerResult, Schema};

use super::MediaDownload;
use crate::{ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk};

/// A generative model.
///
/// The provider's duties: system messages arrive among the others; unknown configuration is passed to the
/// service unchanged; a tool request carries the service's call id in `ref`; structured output is a text part
/// of JSON; chunks are incremental, or marked as aggregated. The framework measures latency, counts
/// characters and media, and rejects requests that the model [declares](Model::info) unsupported.
///
/// ```
/// use everturn_ai::{Model, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk};
/// use everturn_core::{Context, Emitter, HandlerResult};
///
/// struct Parrot;
///
/// impl Model for Parrot {
///     async fn generate(
///         &self,
///         request: ModelRequest,
///         _emitter: Emitter<ModelResponseChunk>,
///         _context: Context,
///     ) -> HandlerResult<ModelResponse> {
///         let said = request.messages.last().map(|message| message.text().into_owned());
///         Ok(ModelResponse::text_of(said.unwrap_or_default()))
///     }
/// }
/// ```
pub trait Model: Send + Sync + 'static {
    /// Returns the capabilities of the model.
    fn info(&self) -> ModelInfo {
        ModelInfo::default()
    }

    /// Returns the schema of the model's configuration; the one in [`Model::info`] if not given.
    fn config_schema(&self) -> Option<Schema> {
        None
    }

    /// Returns the settings for fetching media behind URLs before the model sees it; nothing is fetched by
    /// default.
    fn media_download(&self) -> Option<MediaDownload> {
        None
    }

    /// Answers a request. If `emitter` has a listener, the answer is also streamed to it.
    fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        context: Context,
    ) -> impl Future<Output = HandlerResult<ModelResponse>> + Send;
}

/// A model made of a function and a description.
pub(super) struct FunctionModel<F> {
    pub(super) info: ModelInfo,
    pub(super) function: F,
}

impl<F, Fut> Model for FunctionModel<F>
where
    F: Fn(ModelRequest, Emitter<ModelResponseChunk>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<ModelResponse>> + Send + 'static,
{
    fn info(&self) -> ModelInfo {
        self.info.clone()
    }

    fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        context: Context,
    ) -> impl Future<Output = HandlerResult<ModelResponse>> + Send {
        (self.function)(request, emitter, context)
    }
}
