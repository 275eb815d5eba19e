//! The operator's routes: health, readiness, the OpenAPI document and metrics.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::{MethodRouter, get};
use everturn_core::Error;
use serde_json::json;

use crate::error_body::{Refusal, json_response};
use crate::handler::{Mounted, Shared};
use crate::metrics::Metrics;
use crate::openapi;

/// Returns the operator's routes.
pub(crate) fn operations(
    mounted: &[Arc<Mounted>],
    shared: &Arc<Shared>,
    metrics: &Metrics,
) -> [(&'static str, MethodRouter); 4] {
    let document = Arc::new(openapi::document(mounted, shared));
    let (metrics, ready) = (metrics.clone(), Arc::clone(shared));
    [
        (
            "/openapi.json",
            get(move || {
                let response = json_response(StatusCode::OK, &*document);
                async move { response }
            }),
        ),
        (
            "/healthz",
            get(|| async { json_response(StatusCode::OK, &json!({ "status": "ok" })) }),
        ),
        (
            "/readyz",
            get(move || {
                let response = if ready.handle.is_shutting_down() {
                    let error = Error::unavailable("the server is shutting down").with_public();
                    Refusal::from(error).respond(ready.exposure)
                } else {
                    json_response(StatusCode::OK, &json!({ "status": "ready" }))
                };
                async move { response }
            }),
        ),
        (
            "/metrics",
            get(move || {
                let response = metrics.respond();
                async move { response }
            }),
        ),
    ]
}
