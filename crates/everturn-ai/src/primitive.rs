//! What embedders, retrievers, indexers, rerankers and evaluators have in common.

use everturn_core::{Action, ActionType, Context, Emitter, JsonCall, Payload, Registry, Result, downcast};
use serde_json::Value;

use crate::JsonObject;

/// Calls the action of that name or key, typed if it is of the expected type and through JSON otherwise.
pub(crate) async fn call<I: Payload, O: Payload>(
    registry: &Registry,
    action_type: &ActionType,
    name: &str,
    input: I,
) -> Result<O> {
    let key = if name.starts_with('/') { name.to_owned() } else { action_type.key(name) };
    let action = registry.resolve(&key).await?;
    let context = Context::current();
    match downcast::<Action<I, O>>(action.clone()) {
        Some(typed) => typed.call(input, context, Emitter::silent()).await,
        None => {
            let call = JsonCall { context, ..JsonCall::new(serde_json::to_value(input)?) };
            Ok(serde_json::from_value(action.run_json(call).await?)?)
        }
    }
}

pub(crate) fn metadata<const N: usize>(entries: [(&str, Value); N]) -> JsonObject {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
