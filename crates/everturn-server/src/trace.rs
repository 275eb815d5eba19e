//! Naming the trace of a call in its answer.

use axum::http::HeaderMap;
use everturn_core::Context;

/// The trace of one call, known once the call has started. There is none if tracing does not go to OpenTelemetry.
#[derive(Default)]
pub(crate) struct Trace {
    #[cfg(feature = "opentelemetry")]
    ids: std::sync::Arc<std::sync::OnceLock<Ids>>,
}

#[cfg(feature = "opentelemetry")]
struct Ids {
    trace: axum::http::HeaderValue,
    span: axum::http::HeaderValue,
}

#[cfg(feature = "opentelemetry")]
impl Trace {
    /// Returns a context that records the trace of its call.
    pub(crate) fn follow(context: Context) -> (Context, Self) {
        use std::sync::Arc;

        let trace = Self::default();
        let ids = Arc::clone(&trace.ids);
        let observer = everturn_core::SpanObserver::new(move |recorder| {
            if let Some(found) = Ids::of(recorder.span()) {
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

#[cfg(feature = "opentelemetry")]
impl Ids {
    fn of(span: &tracing::Span) -> Option<Self> {
        use opentelemetry::trace::TraceContextExt;
        use tracing_opentelemetry::OpenTelemetrySpanExt;

        let context = span.context();
        let span = context.span();
        let span = span.span_context();
        let header = |id: String| axum::http::HeaderValue::from_str(&id).ok();
        span.is_valid().then_some(())?;
        Some(Self {
            trace: header(span.trace_id().to_string())?,
            span: header(span.span_id().to_string())?,
        })
    }
}

#[cfg(not(feature = "opentelemetry"))]
impl Trace {
    /// Returns a context that records the trace of its call.
    pub(crate) fn follow(context: Context) -> (Context, Self) {
        (context, Self::default())
    }

    /// Names the trace in an answer.
    #[expect(
        clippy::unused_self,
        reason = "there is something to name with the feature only"
    )]
    pub(crate) fn name_in(&self, headers: &mut HeaderMap) {
        let _ = headers;
    }
}
