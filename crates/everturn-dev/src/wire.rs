//! The JSON shapes that both transports share.

use everturn_core::{Descriptor, Error, Registry, Result, SpanIds, Status};
use serde_json::{Map, Value, json};

/// The version of this program, for the tools: language and version.
pub(crate) const VERSION: &str = concat!("rust/", env!("CARGO_PKG_VERSION"));

/// The action types of the tools, which reject a list with any other.
const KNOWN_TYPES: [&str; 21] = [
    "agent",
    "agent-abort",
    "agent-snapshot",
    "background-model",
    "cancel-operation",
    "check-operation",
    "custom",
    "dynamic-action-provider",
    "embedder",
    "evaluator",
    "executable-prompt",
    "flow",
    "indexer",
    "model",
    "prompt",
    "reranker",
    "resource",
    "retriever",
    "tool",
    "tool.v2",
    "util",
];

/// Returns every action of a type in the tools' list, by key.
///
/// # Errors
/// As [`Registry::list`].
pub(crate) async fn actions(registry: &Registry) -> Result<Map<String, Value>> {
    let all = registry.list().await?;
    Ok(all
        .into_values()
        .filter(|action| KNOWN_TYPES.contains(&action.action_type.as_str()))
        .map(|action| (action.key.clone(), describe(&action)))
        .collect())
}

/// Returns a descriptor in the tools' format. Absent fields are omitted: one `null` in one descriptor hides
/// all actions.
fn describe(action: &Descriptor) -> Value {
    let mut shown = Map::new();
    shown.insert("key".into(), action.key.clone().into());
    shown.insert("name".into(), action.name.clone().into());
    shown.insert("actionType".into(), action.action_type.as_str().into());
    if let Some(description) = &action.description {
        shown.insert("description".into(), description.clone().into());
    }
    let schemas = [
        ("inputSchema", &action.input_schema),
        ("outputSchema", &action.output_schema),
        ("streamSchema", &action.stream_schema),
        ("initSchema", &action.init_schema),
    ];
    for (name, schema) in schemas {
        // The tools reject `true`, the schema that accepts everything, because it is not an object.
        if let Some(schema) = schema
            .as_ref()
            .map(everturn_core::Schema::as_json)
            .filter(|json| json.is_object())
        {
            shown.insert(name.into(), schema.clone());
        }
    }
    let metadata = action.metadata.iter().filter(|(_, value)| acceptable(value));
    let metadata: Map<_, _> = metadata
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    shown.insert("metadata".into(), metadata.into());
    shown.into()
}

/// Whether the tools accept a value directly under `metadata`.
fn acceptable(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.iter().any(|item| item.is_null() || item.is_array()),
        _ => true,
    }
}

/// Returns the registered values of a type, or `None` for an unknown type.
pub(crate) fn values(registry: &Registry, kind: &str) -> Option<Value> {
    match kind {
        "defaultModel" => Some(match everturn_ai::default_model(registry) {
            Some(model) => json!({ "defaultModel": model }),
            None => json!({}),
        }),
        "middleware" => {
            let all = everturn_ai::middleware_descriptions(registry);
            let named = all
                .into_iter()
                .map(|description| (description.name.clone(), json!(description)));
            Some(named.collect::<Map<_, _>>().into())
        }
        _ => None,
    }
}

/// Returns the response of a successful run.
pub(crate) fn result(value: &Value, ids: Option<SpanIds>) -> Value {
    match ids {
        Some(ids) => json!({ "result": value, "telemetry": { "traceId": ids.trace.to_string() } }),
        None => json!({ "result": value }),
    }
}

/// Returns the error object of a failed run. `details` is always present: the tools crash without it.
pub(crate) fn failure(error: &Error, ids: Option<SpanIds>) -> Value {
    let mut details = Map::new();
    if let Some(ids) = ids {
        details.insert("traceId".into(), ids.trace.to_string().into());
    }
    details.insert("stack".into(), chain(error).into());
    let message = match error.status() {
        Status::Cancelled => "Action was cancelled",
        _ => error.message(),
    };
    json!({ "code": error.status().code(), "message": message, "details": details })
}

/// Returns an error with its chain of causes, one per line.
fn chain(error: &Error) -> String {
    let mut text = format!("{}: {}", error.status(), error.message());
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text.push_str("\ncaused by: ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}
