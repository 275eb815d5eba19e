//! The live state of a session, as templates see it.

use std::sync::Arc;

use everturn_core::Context;
use serde_json::Value;

/// Reads the state when a template asks for it; an extension of the context.
struct PromptState(Box<dyn Fn() -> Arc<Value> + Send + Sync>);

/// A context in which prompts read `{{@state...}}` from `read`, called only for templates that look.
pub fn with_prompt_state(context: Context, read: impl Fn() -> Arc<Value> + Send + Sync + 'static) -> Context {
    context.with_extension(Arc::new(PromptState(Box::new(read))))
}

/// The state as it is now, if there is a session.
pub(super) fn current(context: &Context) -> Option<Arc<Value>> {
    context.extension::<PromptState>().map(|state| (state.0)())
}
