//! The operator's routes: health, readiness, the OpenAPI document and metrics.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::routing::{MethodRouter, get};
use everturn_core::Error;
use serde_json::json;

use crate::error_body::{Refusal, json_response};
use crate::handler::{Mounted, Shared};
use crate::metrics::Metrics;
use crate::openapi;

/// Returns the operator's routes. `/healthz` and `/readyz` answer everybody; the other two tell of what is inside, and answer
/// callers that the providers let in, unless the server is told otherwise.
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
            for_callers(shared, move || json_response(StatusCode::OK, &*document)),
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
        ("/metrics", for_callers(shared, move || metrics.respond())),
    ]
}

/// Answers callers that the providers let in.
fn for_callers(
    shared: &Arc<Shared>,
    answer: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
) -> MethodRouter {
    let shared = Arc::clone(shared);
    get(move |request: Request| async move {
        if !shared.open_operations {
            let (head, _body) = request.into_parts();
            if let Err(refusal) = shared.identify(&head, None).await {
                return refusal.respond(shared.exposure);
            }
        }
        answer()
    })
}
