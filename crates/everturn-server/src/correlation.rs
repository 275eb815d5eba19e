//! Request ids and trace contexts, which connect a request with its log lines, response and trace.

use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use everturn_agent::IdempotencyKey;
use everturn_core::{Context, Error, RequestId, SpanObserver, SpanRecorder, Status, TraceParent};

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

/// The trace of one call, known once the call has started. There is none if spans are not recorded.
#[derive(Default)]
pub(crate) struct Trace {
    ids: Arc<OnceLock<Ids>>,
}

struct Ids {
    trace: HeaderValue,
    span: HeaderValue,
}

impl Trace {
    /// Returns a context that records the trace of its call.
    pub(crate) fn follow(context: Context) -> (Context, Self) {
        let trace = Self::default();
        let ids = Arc::clone(&trace.ids);
        let observer = SpanObserver::new(move |recorder| {
            if let Some(found) = Ids::of(recorder) {
                // Only the outermost span is named.
                let _ = ids.set(found);
            }
        });
        (context.with_extension(Arc::new(observer)), trace)
    }

    /// Names the trace in an answer.
    pub(crate) fn name_in(&self, headers: &mut HeaderMap) {
        if let Some(ids) = self.ids.get() {
            headers.insert("x-genkit-trace-id", ids.trace.clone());
            headers.insert("x-genkit-span-id", ids.span.clone());
        }
    }
}

impl Ids {
    fn of(recorder: &SpanRecorder) -> Option<Self> {
        match recorder.ids() {
            Some(ids) => Self::named(&ids.trace.to_string(), &ids.span.to_string()),
            None => Self::in_opentelemetry(recorder.span()),
        }
    }

    fn named(trace: &str, span: &str) -> Option<Self> {
        let header = |id: &str| HeaderValue::from_str(id).ok();
        Some(Self {
            trace: header(trace)?,
            span: header(span)?,
        })
    }

    /// Returns the ids that a layer of the program's own gave the span.
    #[cfg(feature = "opentelemetry")]
    fn in_opentelemetry(span: &tracing::Span) -> Option<Self> {
        use opentelemetry::trace::TraceContextExt;
        use tracing_opentelemetry::OpenTelemetrySpanExt;

        let context = span.context();
        let span = context.span();
        let span = span.span_context();
        span.is_valid().then_some(())?;
        Self::named(&span.trace_id().to_string(), &span.span_id().to_string())
    }

    #[cfg(not(feature = "opentelemetry"))]
    fn in_opentelemetry(_span: &tracing::Span) -> Option<Self> {
        None
    }
}
