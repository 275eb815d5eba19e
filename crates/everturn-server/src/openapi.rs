//! The OpenAPI document of the mounted routes, made from the schemas of their actions.
//!
//! The document is complete: every status that the server can answer is listed or falls under `default`, and
//! all failures have the same body.

mod components;
mod operation;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use self::components::Components;
use self::operation::{json_content, operation};
use crate::RouteKind;
use crate::handler::{Mounted, Shared};

/// The path of the list of agents.
pub(crate) const AGENTS: &str = "/agents";

/// The path of the metrics.
const METRICS: &str = "/metrics";

/// Creates the document. The routes of operators are shown to operators.
pub(crate) fn document(mounted: &[Arc<Mounted>], shared: &Shared, is_operator: bool) -> Value {
    let mut components = Components::new();
    let mut paths: Map<String, Value> = Map::new();
    let mut add = |path: &str, method: &str, operation: Value| {
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods[method] = operation;
    };
    let has_get = |path: &str| {
        let is_it = |mounted: &Arc<Mounted>| mounted.route.path == path && mounted.route.method == "GET";
        mounted.iter().any(is_it)
    };
    let is_shown = |mounted: &&Arc<Mounted>| is_operator || mounted.route.kind != RouteKind::Operator;
    for mounted in mounted.iter().filter(is_shown) {
        let method = mounted.route.method.as_str().to_ascii_lowercase();
        add(&mounted.route.path, &method, operation(mounted, &mut components));
    }
    for (path, summary, content) in operations() {
        if path == METRICS && !is_operator {
            continue;
        }
        let mut described = get(summary, &content, path == "/readyz");
        if shared.provider.is_some() && matches!(path, AGENTS | "/openapi.json" | METRICS) {
            let error = json!({ "$ref": "#/components/responses/Error" });
            described["security"] = security(shared);
            described["responses"]["401"] = error.clone();
            if path == METRICS {
                described["responses"]["403"] = error;
            }
        }
        // An agent may have the path of the list of agents, and then replaces it.
        if path != AGENTS || !has_get(path) {
            add(path, "get", described);
        }
    }
    let schemes: Map<String, Value> = alternatives(shared)
        .into_iter()
        .flatten()
        .map(|(name, scheme)| (name.to_owned(), scheme))
        .collect();
    let mut components = components.finish();
    if !schemes.is_empty() {
        components["securitySchemes"] = Value::Object(schemes);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Everturn",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Agents and flows, one call per request; streamed where the caller accepts text/event-stream.",
        },
        "paths": paths,
        "components": components,
    })
}

/// Returns the alternatives by which callers identify themselves.
fn alternatives(shared: &Shared) -> Vec<Vec<(&'static str, Value)>> {
    let provider = shared.provider.as_ref();
    provider.map_or_else(Vec::new, |provider| provider.inner.security())
}

/// Returns the security requirements of a route for identified callers.
fn security(shared: &Shared) -> Value {
    let needed = |schemes: Vec<(&'static str, Value)>| {
        let schemes = schemes.into_iter();
        Value::Object(schemes.map(|(name, _)| (name.to_owned(), json!([]))).collect())
    };
    alternatives(shared).into_iter().map(needed).collect()
}

/// Returns the operator's routes: path, summary and content of the answer.
fn operations() -> [(&'static str, &'static str, Value); 5] {
    let status = |status: &str| {
        json_content(&json!({
            "type": "object",
            "properties": { "status": { "const": status } },
            "required": ["status"],
        }))
    };
    [
        (
            AGENTS,
            "The agents, and which actions each has.",
            json_content(&agents()),
        ),
        (
            "/openapi.json",
            "This document.",
            json_content(&json!({ "type": "object" })),
        ),
        ("/healthz", "Whether the process is alive.", status("ok")),
        ("/readyz", "Whether the server takes calls.", status("ready")),
        (
            METRICS,
            "What the server counted, for Prometheus.",
            json!({ "application/openmetrics-text": { "schema": { "type": "string" } } }),
        ),
    ]
}

fn get(summary: &str, content: &Value, can_be_unavailable: bool) -> Value {
    let mut responses = json!({ "200": { "description": "OK", "content": content } });
    if can_be_unavailable {
        responses["503"] = json!({ "$ref": "#/components/responses/Error" });
    }
    json!({ "summary": summary, "tags": ["operations"], "security": [], "responses": responses })
}

/// Returns the schema of the list of agents.
fn agents() -> Value {
    let agent = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "path": { "type": "string", "description": "The path at which the agent is called." },
            "description": { "type": ["string", "null"] },
            "metadata": {
                "type": "object",
                "description": "`agent` says where the state is kept, and has the schemas of state and status; `everturn` says what happens to a turn that meets another, and what clients may bring (`clientPermissions`).",
            },
            "actions": {
                "type": "array",
                "items": { "type": "string" },
                "description": "The companion actions below the agent's path, such as `getSnapshot`.",
            },
        },
        "required": ["name", "path", "metadata", "actions"],
    });
    json!({
        "type": "object",
        "properties": { "agents": { "type": "array", "items": agent } },
        "required": ["agents"],
    })
}
