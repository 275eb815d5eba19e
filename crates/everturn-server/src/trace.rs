//! Naming the trace of a call in its answer.

use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, HeaderValue};
use everturn_core::{Context, SpanObserver, SpanRecorder};

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
