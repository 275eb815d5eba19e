//! The trait that a provider implements, and wrapping a model as an action.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use everturn_core::{
    Action, ActionType, Context, Emitter, HandlerResult, Registry, Result, Schema, SpanRecorder,
};
use futures::TryFutureExt;
use serde_json::{Value, json};

use super::preparation::Preparation;
use super::{MediaDownload, ModelAction};
use crate::usage_meter::record_usage;
use crate::{JsonObject, Message, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk, Prices};

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
///         let last = request.messages.last().map(|message| message.text().into_owned());
///         Ok(ModelResponse::text_of(last.unwrap_or_default()))
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

/// The entry of a model's metadata for the most tokens of a request.
pub(super) const MAX_INPUT_TOKENS: &str = "maxInputTokens";

/// Creates the action that runs a model behind the built-in wrappers; plugins return it from
/// [`Plugin::init`](everturn_core::Plugin::init).
pub fn model_action(name: impl Into<String>, model: impl Model) -> ModelAction {
    let name: String = name.into();
    let info = model.info();
    let schema = config_schema(&model, &info);
    let metadata = descriptor_metadata(&name, &info, schema.as_ref());
    let preparation = Preparation::new(&name, info, schema, model.media_download());
    let shared = Arc::new((model, preparation, name.clone()));
    Action::streaming(ActionType::MODEL, name, move |request, context, emitter| {
        let shared = Arc::clone(&shared);
        async move {
            let (model, preparation, name) = &*shared;
            let request = preparation.prepare(request, &context).await?;
            let recorder = SpanRecorder::of(&context);
            let prices = context.find_dep::<Prices>();
            let response = measured(request, |request| model.generate(request, emitter, context)).await?;
            record_usage(&recorder, name, prices.as_deref(), &response);
            Ok(response)
        }
    })
    .with_metadata(metadata)
}

fn config_schema(model: &impl Model, info: &ModelInfo) -> Option<Schema> {
    model.config_schema().or_else(|| {
        let declared = info.config_schema.clone()?;
        match Schema::from_json(declared) {
            Ok(schema) => Some(schema),
            Err(error) => {
                tracing::warn!(%error, "a model's configuration schema is unusable and will not be enforced");
                None
            }
        }
    })
}

/// Returns the metadata that listings and developer tools show about a model.
pub(super) fn descriptor_metadata(name: &str, info: &ModelInfo, schema: Option<&Schema>) -> JsonObject {
    let mut model = json!({ "label": info.label.as_deref().unwrap_or(name) });
    let optional = [
        ("versions", serde_json::to_value(&info.versions)),
        ("supports", serde_json::to_value(&info.supports)),
        ("stage", serde_json::to_value(info.stage)),
        (
            "customOptions",
            Ok(schema.map_or(Value::Null, |schema| schema.as_json().clone())),
        ),
    ];
    for (key, value) in optional {
        if let Some(value) = value.ok().filter(|value| !value.is_null()) {
            model[key] = value;
        }
    }
    let size = info
        .max_input_tokens
        .map(|size| (MAX_INPUT_TOKENS.to_owned(), json!(size)));
    let described = [("type".to_owned(), json!("model")), ("model".to_owned(), model)];
    described.into_iter().chain(size).collect()
}

/// Registers a provider's model.
///
/// # Errors
/// `ALREADY_EXISTS` if there is a model of that name.
pub fn register_model(
    registry: &Registry,
    name: impl Into<String>,
    model: impl Model,
) -> Result<ModelAction> {
    let action = model_action(name, model);
    registry.register(Arc::new(action.clone()))?;
    Ok(action)
}

/// Registers an async function as a model.
///
/// # Errors
/// `ALREADY_EXISTS` if there is a model of that name.
pub fn define_model<F, Fut>(
    registry: &Registry,
    name: impl Into<String>,
    info: ModelInfo,
    function: F,
) -> Result<ModelAction>
where
    F: Fn(ModelRequest, Emitter<ModelResponseChunk>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<ModelResponse>> + Send + 'static,
{
    register_model(registry, name, FunctionModel { info, function })
}

/// Runs the provider and fills in the usage that it did not measure. Counting does not iterate over a shared
/// history.
fn measured<Fut>(
    request: ModelRequest,
    provider: impl FnOnce(ModelRequest) -> Fut,
) -> impl Future<Output = HandlerResult<ModelResponse>>
where
    Fut: Future<Output = HandlerResult<ModelResponse>>,
{
    let input = request.messages.stats();
    let started = Instant::now();
    // Without an `async` block, which would store the provider's future twice.
    provider(request).map_ok(move |mut response| {
        response
            .latency_ms
            .get_or_insert_with(|| started.elapsed().as_secs_f64() * 1000.0);
        let output = response.message.as_ref().map(Message::stats).unwrap_or_default();
        response.usage.get_or_insert_default().fill_counts(input, output);
        response
    })
}
