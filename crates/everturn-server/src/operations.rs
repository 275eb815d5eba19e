//! The operator's routes: the list of agents, health, readiness, the OpenAPI document and metrics.

use std::sync::{Arc, OnceLock};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::routing::{MethodRouter, get};
use everturn_core::Error;
use serde_json::{Value, json};

use crate::RouteKind;
use crate::error_body::{Refusal, json_response, json_text};
use crate::handler::{Mounted, Shared};
use crate::metrics::Metrics;
use crate::openapi::{self, AGENTS};

/// Returns the operator's routes. `/healthz` and `/readyz` answer everybody; the others tell of what is inside, and answer
/// callers that the providers let in, unless the server is told otherwise.
pub(crate) fn operations(
    mounted: &[Arc<Mounted>],
    shared: &Arc<Shared>,
    metrics: &Metrics,
) -> [(&'static str, MethodRouter); 5] {
    // Written when it is first asked for, and kept as text: as a value it would be many times as large.
    let document: Arc<OnceLock<Bytes>> = Arc::default();
    let described = Arc::new((mounted.to_vec(), Arc::clone(shared)));
    let agents = Arc::new(agents(mounted));
    let (metrics, ready) = (metrics.clone(), Arc::clone(shared));
    [
        (
            AGENTS,
            for_callers(shared, move || json_response(StatusCode::OK, &*agents)),
        ),
        (
            "/openapi.json",
            for_callers(shared, move || {
                let (mounted, shared) = &*described;
                let document = document.get_or_init(|| openapi::document(mounted, shared).to_string().into());
                json_text(StatusCode::OK, document.clone())
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

/// Returns the list of agents: each with its path, what it does, and the names of the companion actions that are mounted below
/// its path.
fn agents(mounted: &[Arc<Mounted>]) -> Value {
    let agents = mounted
        .iter()
        .filter(|mounted| mounted.route.kind == RouteKind::Agent)
        .map(|agent| {
            let path = &agent.route.path;
            let actions: Vec<&str> = mounted
                .iter()
                .filter(|other| matches!(other.route.kind, RouteKind::Companion | RouteKind::Archive))
                .filter_map(|other| other.route.path.strip_prefix(path)?.strip_prefix('/'))
                .filter(|segment| !segment.contains('/'))
                .collect();
            let descriptor = agent.action.descriptor();
            json!({
                "name": descriptor.name,
                "path": path,
                "description": descriptor.description,
                "metadata": descriptor.metadata,
                "actions": actions,
            })
        });
    json!({ "agents": agents.collect::<Vec<_>>() })
}
