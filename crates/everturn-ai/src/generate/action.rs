//! The action `/util/generate`: a generation whose models, tools and middleware are given by name.

use std::sync::Arc;

use everturn_core::{Action, ActionType, Registry, Result};

use super::plan::{FirstSpan, Plan};
use crate::{GenerateActionOptions, ModelResponse, ModelResponseChunk};

/// Registers the action `/util/generate`.
///
/// The action looks names up in the registry in which it is registered.
///
/// # Errors
/// `ALREADY_EXISTS` if it is registered already.
pub fn register_generate(registry: &Registry) -> Result<()> {
    // A strong handle would be a cycle, because the registry holds the action.
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
