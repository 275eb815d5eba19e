//! The OpenAPI document of what is mounted.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::handler::Mounted;

/// The document.
pub(crate) fn document(mounted: &[Arc<Mounted>]) -> Value {
    let paths: serde_json::Map<String, Value> = mounted
        .iter()
        .map(|mounted| (mounted.route.path.clone(), json!({})))
        .collect();
    json!({ "openapi": "3.1.0", "info": { "title": "Everturn", "version": env!("CARGO_PKG_VERSION") }, "paths": paths })
}
