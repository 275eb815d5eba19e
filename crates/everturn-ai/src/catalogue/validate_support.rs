//! Refusing what a model cannot do.

use async_trait::async_trait;
use everturn_core::{ActionType, HandlerResult, Registry, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Middleware, ModelCall, ModelResponse, ModelSupports, NextModel, validate_support};

/// Refuses requests that need what the model declares unsupported; what is not declared is assumed to work.
///
/// Models made here refuse such requests by themselves. The middleware is for models that a plugin made in a way of its
/// own, and for stricter rules than a model's: `ValidateSupport::new(supports)` replaces the model's declaration.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ValidateSupport {
    /// The name that a refusal gives the model; the model's own if not given.
    name: Option<String>,
    /// What is supported; what the model declares if not given.
    supports: Option<ModelSupports>,
}

impl ValidateSupport {
    /// Checks against `supports` instead of what the model declares.
    pub fn new(supports: ModelSupports) -> Self {
        Self {
            supports: Some(supports),
            ..Self::default()
        }
    }

    async fn supports(&self, registry: &Registry, model: &str) -> Result<ModelSupports> {
        if let Some(supports) = &self.supports {
            return Ok(supports.clone());
        }
        let key = if model.starts_with('/') {
            model.to_owned()
        } else {
            ActionType::MODEL.key(model)
        };
        let action = registry.lookup(&key).await?;
        let declared = action
            .as_ref()
            .and_then(|action| action.descriptor().metadata.get("model")?.get("supports"));
        Ok(declared
            .and_then(|declared| ModelSupports::deserialize(declared).ok())
            .unwrap_or_default())
    }
}

#[async_trait]
impl Middleware for ValidateSupport {
    async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        let supports = self.supports(&call.registry, &call.model).await?;
        validate_support(
            &call.request,
            self.name.as_deref().unwrap_or(&call.model),
            &supports,
        )?;
        Ok(next.run(call).await?)
    }
}
