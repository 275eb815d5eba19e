//! Request ids and trace contexts, which connect a request with its log lines, response and trace.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use everturn_agent::IdempotencyKey;
use everturn_core::{Context, Error, RequestId, Status, TraceParent};

/// The header with the id of a request.
const REQUEST_ID: &str = "x-request-id";

/// Assigns an id to each request, the caller's own if it sends one, and returns it in the response.
pub(crate) async fn identified(mut request: Request, next: Next) -> Response {
    let id = header(request.headers(), REQUEST_ID)
        .and_then(RequestId::given)
        .unwrap_or_else(RequestId::random);
    let value = HeaderValue::from_str(id.as_str()).expect("ids are plain text");
    request.extensions_mut().insert(id);
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, value);
    response
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The header with the key by which a repetition of a request is recognised.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The key that a request brings for its call; an extension of the context.
///
/// It differs from [`IdempotencyKey`] because it applies to the agent that the request calls, and not to
/// agents that a flow calls.
#[derive(Debug)]
struct SentKey(IdempotencyKey);

/// Sets the idempotency key of an agent's call: the key of its request, else the id of the request.
pub(crate) fn keyed(context: Context) -> Context {
    let key = match context.extension::<SentKey>() {
        Some(sent) => sent.0.clone(),
        None => IdempotencyKey::new(RequestId::of(&context).as_str()),
    };
    context.with_extension(Arc::new(key))
}

/// The id of a request, and the span of the program that sent it.
#[derive(Debug, Clone)]
pub(crate) struct Correlation {
    request: RequestId,
    key: Option<IdempotencyKey>,
    caller: Option<TraceParent>,
}

impl Correlation {
    pub(crate) fn of(head: &Parts) -> Self {
        let caller = header(&head.headers, "traceparent").and_then(TraceParent::parse);
        let state = header(&head.headers, "tracestate").unwrap_or_default();
        Self {
            request: head
                .extensions
                .get::<RequestId>()
                .cloned()
                .unwrap_or_else(RequestId::random),
            // An id of this form is safe to log and to return.
            key: header(&head.headers, IDEMPOTENCY_KEY)
                .and_then(RequestId::given)
                .map(|key| IdempotencyKey::new(key.as_str())),
            caller: caller.map(|caller| caller.with_state(state)),
        }
    }

    /// Returns the context of a call that the request asks for.
    pub(crate) fn enter(&self, context: Context) -> Context {
        let context = context.with_extension(Arc::new(self.request.clone()));
        let context = match &self.key {
            Some(key) => context.with_extension(Arc::new(SentKey(key.clone()))),
            None => context,
        };
        match &self.caller {
            Some(caller) => context.with_extension(Arc::new(caller.clone())),
            None => context,
        }
    }
}

/// Logs a failed call, unless it was logged before. Only failures of the server itself are logged as errors.
pub(crate) fn log_failed_call(path: &str, request_id: &RequestId, error: &Error) {
    if !error.claim_report() {
        return;
    }
    let (status, error) = (error.status(), error.with_causes());
    if status == Status::Cancelled {
        tracing::debug!(path, %request_id, %error, "a call was cancelled");
    } else if status.http_status() >= 500 {
        tracing::error!(path, %request_id, %status, %error, "a call failed");
    } else {
        tracing::info!(path, %request_id, %status, %error, "a call was refused");
    }
}
