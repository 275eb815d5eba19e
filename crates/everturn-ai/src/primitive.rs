//! Calling actions of any kind by name.

use std::sync::Arc;

use everturn_core::{
    Action, ActionType, Context, DynAction, Emitter, JsonCall, Payload, Registry, Result, downcast,
};
use serde_json::Value;

use crate::JsonObject;

/// Runs the action with that name or key in the current context.
pub(crate) async fn call<I: Payload, O: Payload>(
    registry: &Registry,
    action_type: &ActionType,
    name: &str,
    input: I,
) -> Result<O> {
    let key = if name.starts_with('/') {
        name.to_owned()
    } else {
        action_type.key(name)
    };
    run(registry.resolve(&key).await?, input, Context::current()).await
}

/// Runs an action: directly if it has the expected types, through JSON otherwise.
pub(crate) async fn run<I: Payload, O: Payload>(
    action: Arc<dyn DynAction>,
    input: I,
    context: Context,
) -> Result<O> {
    if let Some(typed) = downcast::<Action<I, O>>(Arc::clone(&action)) {
        return typed.call(input, context, Emitter::silent()).await;
    }
    let call = JsonCall {
        context,
        ..JsonCall::new(serde_json::to_value(input)?)
    };
    Ok(serde_json::from_value(action.run_json(call).await?)?)
}

pub(crate) fn metadata<const N: usize>(entries: [(&str, Value); N]) -> JsonObject {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}
