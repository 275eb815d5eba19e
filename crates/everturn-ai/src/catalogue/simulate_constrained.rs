//! An output schema in words.

use async_trait::async_trait;
use everturn_core::HandlerResult;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Middleware, ModelCall, ModelResponse, NextModel, needs_simulation, simulate_constrained};

/// Tells the model an enforced output schema in words and takes it out of the request.
///
/// Models that do not declare to enforce schemas get this anyway; the middleware is for those that do it badly.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimulateConstrained {}

#[async_trait]
impl Middleware for SimulateConstrained {
    async fn model(&self, mut call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        if needs_simulation(&call.request, None) {
            call.request = simulate_constrained(call.request);
        }
        Ok(next.run(call).await?)
    }
}
