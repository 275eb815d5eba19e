//! Calling other models when the first one fails.

use async_trait::async_trait;
use everturn_core::{Error, HandlerResult, Result, Status};
use schemars::JsonSchema;
use serde::Deserialize;

use super::retry::{Statuses, TRANSIENT};
use crate::{
    Middleware, ModelCall, ModelReference, ModelResponse, NextModel, call_model, interrupt_data, reason,
};

/// Calls other models, in order, when the model fails with one of the listed statuses.
///
/// An unclassified error, or one with another status, is returned at once, whichever model it came from. So
/// is the `NOT_FOUND` of a fallback model that is not registered, because it is a configuration mistake and
/// not an outage. If every model fails, the last one's error is returned.
///
/// A fallback model gets the configuration of its reference, or else the request's, unless
/// [`isolate_config`](Self::isolate_config) restricts the request's to the first model. It is called
/// directly, without the middleware inside this one, and streams to the same receiver: chunks that the failed
/// model streamed stay in the stream, and the final response contains only the output of the model that
/// answered.
///
/// ```
/// use everturn_ai::builtin_middleware::Fallback;
/// use everturn_ai::ModelReference;
/// use serde_json::json;
///
/// let fallback = Fallback::new(["openai/gpt-5-mini"])
///     .model(ModelReference::new("ollama/llama3").with_config(json!({ "temperature": 0 })));
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fallback {
    /// The models to call, in order: names, or names with configuration.
    #[schemars(with = "Vec<NameOrReference>")]
    models: Vec<ModelReference>,
    /// The statuses on which the next model is called.
    #[serde(default = "default_statuses")]
    statuses: Statuses,
    /// Whether the fallback models do not receive the request's configuration.
    #[serde(default)]
    isolate_config: bool,
}

/// The two ways in which a model may be written.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a wire form and is never made")]
enum NameOrReference {
    Name(String),
    Reference(ModelReference),
}

fn default_statuses() -> Statuses {
    TRANSIENT
        .into_iter()
        .chain([Status::NotFound, Status::Unimplemented])
        .collect()
}

impl Fallback {
    /// Creates a fallback on these models, in order.
    pub fn new(models: impl IntoIterator<Item = impl Into<ModelReference>>) -> Self {
        Self {
            models: models.into_iter().map(Into::into).collect(),
            statuses: default_statuses(),
            isolate_config: false,
        }
    }

    everturn_core::setters! {
        /// Adds a model at the end.
        pub fn model(mut self, model: impl Into<ModelReference>) { self.models.push(model.into()) }

        /// Sets the statuses on which the next model is called, instead of the default ones.
        pub fn statuses(mut self, statuses: impl IntoIterator<Item = Status>) {
            self.statuses = statuses.into_iter().collect();
        }

        /// Does not pass the request's configuration to the fallback models.
        pub fn isolate_config(mut self) { self.isolate_config = true }
    }

    /// Fails with `INVALID_ARGUMENT` if no model is named.
    pub(super) fn checked(self) -> Result<Self> {
        if self.models.is_empty() {
            return Err(Error::invalid_argument("`models` names no model to fall back on"));
        }
        Ok(self)
    }

    fn is_covered(&self, error: &Error) -> bool {
        error.is_classified() && self.statuses.contains(error.status()) && interrupt_data(error).is_none()
            // A limit applies to every model.
            && !error.is(reason::LIMIT_REACHED)
    }

    async fn ask(&self, model: &ModelReference, call: ModelCall) -> Result<ModelResponse> {
        let mut request = call.request;
        if model.config.is_some() {
            request.config.clone_from(&model.config);
        } else if self.isolate_config {
            request.config = None;
        }
        call_model(&call.registry, &model.name, request, call.emitter, call.context).await
    }
}

#[async_trait]
impl Middleware for Fallback {
    async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        let mut error = match next.run(call.clone()).await {
            Err(error) if self.is_covered(&error) => error,
            result => return Ok(result?),
        };
        for model in &self.models {
            // A cancelled call needs no other model's answer.
            if call.context.is_cancelled() {
                break;
            }
            tracing::warn!(failed = call.model, %error, fallback = model.name, "asking another model");
            error = match self.ask(model, call.clone()).await {
                // `NOT_FOUND` may be a status to fall back on, but an unregistered model is a mistake in the
                // configuration.
                Err(error) if error.is(reason::MODEL_NOT_FOUND) => {
                    return Err(error.context("falling back on another model").into());
                }
                Err(error) if self.is_covered(&error) => error,
                result => return Ok(result?),
            };
        }
        Err(error.into())
    }
}
