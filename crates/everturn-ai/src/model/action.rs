//! Wrapping a provider's model as an action.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use everturn_core::{
    Action, ActionType, Context, Emitter, HandlerResult, Registry, Result, Schema, SpanRecorder,
};
use futures::TryFutureExt;
use serde_json::{Value, json};

use super::preparation::Preparation;
use super::provider::FunctionModel;
use super::{Model, ModelAction};
use crate::usage_meter::record_usage;
use crate::{JsonObject, Message, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk, Prices};

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
