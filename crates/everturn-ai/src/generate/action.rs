//! The action `/util/generate`: a generation for callers that name everything.

use std::sync::Arc;

use everturn_core::{Action, ActionType, Registry, Result};

use super::plan::{FirstSpan, Plan};
use crate::{GenerateActionOptions, ModelResponse, ModelResponseChunk};

/// Registers the action `/util/generate`.
///
/// The action resolves names in the registry it is registered in.
///
/// # Errors
/// `ALREADY_EXISTS` if it is registered already.
pub fn register_generate(registry: &Registry) -> Result<()> {
    // The action is kept in the registry, so it must not keep the registry.
    let own = registry.downgrade();
    let action: Action<GenerateActionOptions, ModelResponse, ModelResponseChunk> =
        Action::streaming(ActionType::UTIL, "generate", move |options, context, emitter| {
            let registry = own.upgrade();
            async move {
                let registry = registry?;
                let plan = Plan {
                    context: Some(context),
                    emitter,
                    ..Plan::from_options(&registry, options)
                };
                Ok(Box::new(plan).run(FirstSpan::Callers, |_| ()).await?.response)
            }
        });
    registry.register(Arc::new(action))
}
