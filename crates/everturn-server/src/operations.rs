//! The operator's routes: the list of agents, health, readiness, the OpenAPI document and metrics.

use std::sync::{Arc, OnceLock};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::routing::{MethodRouter, get};
use everturn_core::{Context, Error};
use serde_json::{Value, json};

use crate::RouteKind;
use crate::correlation::Correlation;
use crate::error_body::{Refusal, json_response, json_text};
use crate::handler::{Mounted, Shared};
use crate::metrics::Metrics;
use crate::openapi::{self, AGENTS};

/// Returns the operator's routes. `/healthz` and `/readyz` accept every caller, `/metrics` accepts operators,
/// and the others accept identified callers. `/openapi.json` shows the routes of operators only to operators.
pub(crate) fn operations(
    mounted: &[Arc<Mounted>],
    shared: &Arc<Shared>,
    metrics: &Metrics,
) -> [(&'static str, MethodRouter); 5] {
    // Rendered on the first request and stored as text: as a value it would be many times as large.
    let documents: Arc<[OnceLock<Bytes>; 2]> = Arc::default();
    let described = Arc::new((mounted.to_vec(), Arc::clone(shared)));
    let agents = Arc::new(agents(mounted));
    let (metrics, scraped, ready) = (metrics.clone(), Arc::clone(shared), Arc::clone(shared));
    [
        (
            AGENTS,
            for_callers(shared, move |_| Ok(json_response(StatusCode::OK, &*agents))),
        ),
        (
            "/openapi.json",
            for_callers(shared, move |context| {
                let (mounted, shared) = &*described;
                let is_operator = shared.is_operator(context);
                let document = documents[usize::from(is_operator)]
                    .get_or_init(|| openapi::document(mounted, shared, is_operator).to_string().into());
                Ok(json_text(StatusCode::OK, document.clone()))
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
            for_callers(shared, move |context| {
                scraped.check_operator(context)?;
                Ok(metrics.respond())
            }),
        ),
    ]
}

/// Answers identified callers.
fn for_callers(
    shared: &Arc<Shared>,
    answer: impl Fn(&Context) -> Result<Response<Body>, Refusal> + Clone + Send + Sync + 'static,
) -> MethodRouter {
    let shared = Arc::clone(shared);
    get(move |request: Request| async move {
        let (head, _body) = request.into_parts();
        let answered = match shared.identify(&head, None).await {
            Ok(caller) => answer(&shared.context(caller, &Correlation::of(&head))),
            Err(refusal) => Err(refusal),
        };
        answered.unwrap_or_else(|refusal| refusal.respond(shared.exposure))
    })
}

/// Returns the list of agents: each with its path, its description, and the names of the companion actions
/// that are mounted below its path.
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
