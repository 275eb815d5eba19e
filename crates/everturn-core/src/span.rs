//! One span per action and step, with the attribute names that the developer tools read.
//!
//! A span has two forms. As an ordinary [`tracing`] span it has few and short fields, because subscribers
//! print them before each log line inside it: the name, the key, the ids of request, session and snapshot,
//! and the outcome. As a [`SpanRecord`] it goes to [`SpanListener`]s, which export it with every attribute,
//! and with inputs and outputs for listeners that request them.

mod listener;
mod recorder;
mod trace_parent;

use std::future::Future;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future;
use tracing::field::Empty;
use tracing::{Instrument, Span};

pub use self::listener::{
    ListeningToSpans, SpanEvent, SpanId, SpanIds, SpanInterest, SpanLabels, SpanLink, SpanListener,
    SpanRecord, TraceId, listen_to_spans,
};
pub use self::recorder::SpanRecorder;
use self::recorder::{Recording, redacted};
pub use self::trace_parent::TraceParent;
use crate::{ActionType, Context, Error, RequestId, Result};

/// The kind of work that a span covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind<'a> {
    /// An action of the given type.
    Action(&'a ActionType),
    /// A step inside an action.
    FlowStep,
    /// A part of the framework, such as one round of a generate loop.
    Util,
    /// Rendering a prompt.
    PromptTemplate,
    /// Executing a prompt.
    Dotprompt,
}

impl SpanKind<'_> {
    fn type_name(self) -> &'static str {
        match self {
            Self::Action(_) => "action",
            Self::FlowStep => "flowStep",
            Self::Util => "util",
            Self::PromptTemplate => "promptTemplate",
            Self::Dotprompt => "dotprompt",
        }
    }

    /// Returns the span's segment of the path; for flows and utilities the type stands without a subtype.
    fn segment(self, name: &str) -> String {
        match self {
            Self::Action(action_type) if *action_type == ActionType::FLOW => format!("/{{{name},t:flow}}"),
            Self::Action(action_type) if *action_type == ActionType::UTIL => format!("/{{{name},t:util}}"),
            Self::Action(action_type) => format!("/{{{name},t:action,s:{action_type}}}"),
            other => format!("/{{{name},t:{}}}", other.type_name()),
        }
    }
}

/// The place of an invocation's span in the tree of spans; an extension of the context.
struct SpanPlace {
    path: String,
    span: Span,
    recording: Option<Arc<Recording>>,
    failure: Arc<OnceLock<String>>,
}

/// A callback that receives the outermost span of an invocation when it starts; an extension of the context.
///
/// It gives the code that starts an invocation the id of its trace.
pub struct SpanObserver(Box<dyn Fn(&SpanRecorder) + Send + Sync>);

impl SpanObserver {
    /// Creates an observer that passes the span's recorder to `function`.
    pub fn new(function: impl Fn(&SpanRecorder) + Send + Sync + 'static) -> Self {
        Self(Box::new(function))
    }
}

crate::opaque_debug!(SpanObserver);

/// The name of the flow that the current steps belong to; an extension of the context.
struct FlowName(String);

/// Runs `work` inside a span and records its outcome. The context passed to `work` holds the span's path.
///
/// `work` itself records its input and output through the [`SpanRecorder`], which serialises only when a
/// listener wants content. Work that is dropped before its end, by a cancellation or a panic, is recorded as
/// failed.
///
/// # Errors
/// The error that `work` returns.
pub async fn in_span<T, F, Fut>(name: &str, kind: SpanKind<'_>, context: Context, work: F) -> Result<T>
where
    F: FnOnce(Context, SpanRecorder) -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let span = open(name, kind);
    if span.is_disabled() && !listener::has_listeners() {
        let recorder = SpanRecorder::blind(span);
        let work = in_box(context.clone(), || work(context, recorder));
        return work.await;
    }
    // Boxed, so that the future of unobserved work does not include it.
    Box::pin(watched(name, kind, context, span, work)).await
}

/// Runs `work` inside a span that a subscriber or listener observes.
async fn watched<T, F, Fut>(
    name: &str,
    kind: SpanKind<'_>,
    context: Context,
    span: Span,
    work: F,
) -> Result<T>
where
    F: FnOnce(Context, SpanRecorder) -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let (context, recorder) = enter(name, kind, context, span.clone());
    let mut unfinished = Unfinished(Some(recorder.clone()));
    let work = in_box(context.clone(), || work(context, recorder.clone()));
    let result = work.instrument(span).await;
    unfinished.0 = None;
    match result {
        Ok(value) => {
            if let Some(failure) = recorder.marked_failure() {
                recorder.fail(failure);
            } else {
                recorder.note("genkit:state", || "success".into());
                recorder.span.record("otel.status_code", "OK");
                recorder.end();
            }
            Ok(value)
        }
        Err(error) => Err(record_failure(&recorder, error)),
    }
}

/// Boxes `work` and makes `context` current from its first step. Each wrapper around a future holds it by
/// value, so without the box a large future would be moved across the stack many times.
fn in_box<T, Fut>(context: Context, work: impl FnOnce() -> Fut) -> impl Future<Output = Result<T>>
where
    Fut: Future<Output = Result<T>>,
{
    // Without an `async` block, which would store the captures of `work` in addition to its future.
    context.scope(Box::pin(future::lazy(|_| work()).flatten()))
}

/// Records a failed span for an invocation that was refused before it began, so that the trace shows the
/// refusal.
pub(crate) fn refused(name: &str, kind: SpanKind<'_>, context: Context, error: Error) -> Error {
    let span = open(name, kind);
    if span.is_disabled() && !listener::has_listeners() {
        return error;
    }
    let (_, recorder) = enter(name, kind, context, span);
    record_failure(&recorder, error)
}

/// Creates the span for `tracing`. Its target is no crate name, so that lines and spans can be filtered
/// separately.
fn open(name: &str, kind: SpanKind<'_>) -> Span {
    let span = tracing::info_span!(
        target: "everturn_span",
        "everturn",
        "otel.name" = name,
        "otel.status_code" = Empty,
        "otel.status_description" = Empty,
        "request_id" = Empty,
        "genkit:key" = Empty,
        "genkit:metadata:agent:sessionId" = Empty,
        "genkit:metadata:agent:snapshotId" = Empty,
    );
    if let (SpanKind::Action(action_type), false) = (kind, span.is_disabled()) {
        span.record("genkit:key", action_type.key(name));
    }
    span
}

/// Marks its span as failed when it is dropped before the work has ended. The work was then interrupted from
/// outside and returned no error, so this span is not marked as the failure's origin.
struct Unfinished(Option<SpanRecorder>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(recorder) = self.0.take() {
            recorder.fail("the work was dropped before it ended");
        }
    }
}

/// Starts the span: records its attributes, notifies listeners, and returns the context for the work inside.
fn enter(name: &str, kind: SpanKind<'_>, context: Context, span: Span) -> (Context, SpanRecorder) {
    let parent = context.extension::<SpanPlace>();
    let recording = listener::has_listeners().then(|| {
        let parent = parent.as_ref().and_then(|place| place.recording.as_deref());
        Arc::new(Recording::new(
            name,
            parent,
            context.extension::<TraceParent>().as_deref(),
        ))
    });
    let mut path = parent
        .as_ref()
        .map(|place| place.path.clone())
        .unwrap_or_default();
    path.push_str(&kind.segment(name));
    let place = Arc::new(SpanPlace {
        path,
        span: span.clone(),
        recording,
        failure: Arc::default(),
    });
    let recorder = SpanRecorder::new(span, &place);
    recorder.note("genkit:name", || name.into());
    recorder.note("genkit:type", || kind.type_name().into());
    recorder.note("genkit:path", || place.path.clone().into());
    if let SpanKind::Action(action_type) = kind {
        recorder.note("genkit:metadata:subtype", || action_type.as_str().into());
        recorder.note("genkit:key", || action_type.key(name).into());
    }
    if !context.values().is_empty() && listener::listeners_need_content() {
        recorder.note("genkit:metadata:context", || redacted(&context).into());
    }
    if let Some(flow) = context.extension::<FlowName>() {
        recorder.note("genkit:metadata:flow:name", || flow.0.clone().into());
    }
    if parent.is_none() {
        recorder.note("genkit:isRoot", || true.into());
        if let Some(request) = context.extension::<RequestId>() {
            recorder.span.record("request_id", request.as_str());
            recorder.note("everturn.request.id", || request.as_str().into());
        }
        if let Some(labels) = context.extension::<SpanLabels>() {
            for (label, value) in &labels.0 {
                recorder.note(label, || value.clone());
            }
        }
    }
    // Called before the observer, which may pass on ids that listeners must have seen.
    recorder.begin();
    if parent.is_none()
        && let Some(observer) = context.extension::<SpanObserver>()
    {
        (observer.0)(&recorder);
    }
    let context = context.with_extension(place);
    let context = match kind {
        SpanKind::Action(action_type) if *action_type == ActionType::FLOW => {
            context.with_extension(Arc::new(FlowName(name.to_owned())))
        }
        _ => context,
    };
    (context, recorder)
}

fn record_failure(recorder: &SpanRecorder, error: Error) -> Error {
    // An error passes through every span around its origin; only the first one is the source.
    if !error.is_traced() {
        recorder.note("genkit:isFailureSource", || true.into());
    }
    recorder.note("error.type", || error.status().name().into());
    recorder.fail(error.message());
    error.traced()
}
