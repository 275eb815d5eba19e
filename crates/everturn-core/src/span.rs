//! One span per action and step, with the attribute names that the developer tools read.
//!
//! Spans are ordinary [`tracing`] spans, so any subscriber sees them and an OpenTelemetry layer exports them unchanged:
//! the dynamic name travels in `otel.name`, the outcome in `otel.status_code`. Inputs and outputs are serialised only
//! when a subscriber records the span or a [`SpanListener`] is told of it.

mod listener;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;
use tracing::field::Empty;
use tracing::{Instrument, Span};

pub use self::listener::{
    ListeningToSpans, SpanId, SpanIds, SpanLabels, SpanListener, SpanRecord, TraceId, listen_to_spans,
};
use crate::{ActionType, Context, Error, Result};

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
    recording: Option<Arc<Recording>>,
}

/// A callback that receives the outermost span of an invocation when it begins; an extension of the context.
///
/// It tells the code that starts an invocation which trace the invocation belongs to.
pub struct SpanObserver(Box<dyn Fn(&SpanRecorder) + Send + Sync>);

impl SpanObserver {
    /// Creates an observer that passes the span's recorder to `function`.
    pub fn new(function: impl Fn(&SpanRecorder) + Send + Sync + 'static) -> Self {
        Self(Box::new(function))
    }
}

impl std::fmt::Debug for SpanObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SpanObserver")
    }
}

/// The name of the flow that the current steps belong to; an extension of the context.
struct FlowName(String);

/// Runs `work` inside a span and records its outcome. The context passed to `work` holds the span's path.
///
/// `work` itself records its input and output through the [`SpanRecorder`], which serialises only when a subscriber
/// records the span. Work that is dropped before its end, by a cancellation or a panic, is recorded as failed.
///
/// # Errors
/// The error that `work` returns.
pub async fn in_span<T, F, Fut>(name: &str, kind: SpanKind<'_>, context: Context, work: F) -> Result<T>
where
    F: FnOnce(Context, SpanRecorder) -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let span = open(name, kind);
    if span.is_disabled() && !listener::anybody() {
        let recorder = SpanRecorder::new(span, None);
        let work = in_box(context.clone(), || work(context, recorder));
        return work.await;
    }

    let (context, recorder) = enter(name, kind, context, span.clone());
    let mut unfinished = Unfinished(Some(recorder.clone()));
    let work = in_box(context.clone(), || work(context, recorder.clone()));
    let result = work.instrument(span).await;
    unfinished.0 = None;
    match result {
        Ok(value) => {
            recorder.text("genkit:state", "success");
            recorder.span.record("otel.status_code", "OK");
            recorder.end();
            Ok(value)
        }
        Err(error) => Err(record_failure(&recorder, error)),
    }
}

/// Boxes `work` and makes `context` current from its first step. Each wrapper around a future holds it by value, so
/// without the box a large future would be moved across the stack many times.
fn in_box<T, Fut>(context: Context, work: impl FnOnce() -> Fut) -> impl Future<Output = Result<T>>
where
    Fut: Future<Output = Result<T>>,
{
    context.scope(Box::pin(async { work().await }))
}

/// Records a failed span for an invocation that was refused before it began, so that the trace shows the refusal.
pub(crate) fn refused(name: &str, kind: SpanKind<'_>, context: Context, error: Error) -> Error {
    let span = open(name, kind);
    if span.is_disabled() && !listener::anybody() {
        return error;
    }
    let (_, recorder) = enter(name, kind, context, span);
    record_failure(&recorder, error)
}

fn open(name: &str, kind: SpanKind<'_>) -> Span {
    tracing::info_span!(
        target: "everturn",
        "everturn",
        "otel.name" = name,
        "otel.status_code" = Empty,
        "otel.status_description" = Empty,
        "genkit:name" = name,
        "genkit:type" = kind.type_name(),
        "genkit:metadata:subtype" = Empty,
        "genkit:key" = Empty,
        "genkit:path" = Empty,
        "genkit:isRoot" = Empty,
        "genkit:input" = Empty,
        "genkit:init" = Empty,
        "genkit:output" = Empty,
        "genkit:state" = Empty,
        "genkit:error" = Empty,
        "genkit:isFailureSource" = Empty,
        "genkit:metadata:context" = Empty,
        "genkit:metadata:flow:name" = Empty,
        "genkit:metadata:agent:sessionId" = Empty,
        "genkit:metadata:agent:snapshotId" = Empty,
        "genkit:metadata:sessionFlow" = Empty,
        "genkit:metadata:snapshotId" = Empty,
    )
}

/// Marks its span as failed when it is dropped before the work has ended. The work was then cut short from outside and
/// returned no error, so this span is not marked as the failure's origin.
struct Unfinished(Option<SpanRecorder>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(recorder) = self.0.take() {
            recorder.fail("the work was dropped before it ended");
        }
    }
}

/// Begins the span: records what is known of it, tells listeners, and returns the context for the work inside.
fn enter(name: &str, kind: SpanKind<'_>, context: Context, span: Span) -> (Context, SpanRecorder) {
    let parent = context.extension::<SpanPlace>();
    let recording = listener::anybody().then(|| {
        let parent = parent.as_ref().and_then(|place| place.recording.as_deref());
        Arc::new(Recording::new(name, parent))
    });
    let recorder = SpanRecorder::new(span, recording.clone());
    // The fields of `tracing`'s span hold these two already.
    recorder.note("genkit:name", || name.into());
    recorder.note("genkit:type", || kind.type_name().into());
    let mut path = parent
        .as_ref()
        .map(|place| place.path.clone())
        .unwrap_or_default();
    path.push_str(&kind.segment(name));
    recorder.text("genkit:path", &path);
    if let SpanKind::Action(action_type) = kind {
        recorder.text("genkit:metadata:subtype", action_type.as_str());
        recorder.text("genkit:key", &action_type.key(name));
    }
    if !context.values().is_empty() {
        recorder.text("genkit:metadata:context", &redacted(&context));
    }
    if let Some(flow) = context.extension::<FlowName>() {
        recorder.text("genkit:metadata:flow:name", &flow.0);
    }
    if parent.is_none() {
        recorder.flag("genkit:isRoot");
        if let Some(labels) = context.extension::<SpanLabels>() {
            for (label, value) in &labels.0 {
                recorder.note(label, || value.clone());
            }
        }
    }
    // Before the observer, which may pass on ids that listeners must know by then.
    recorder.begin();
    if parent.is_none()
        && let Some(observer) = context.extension::<SpanObserver>()
    {
        (observer.0)(&recorder);
    }
    let context = context.with_extension(Arc::new(SpanPlace { path, recording }));
    let context = match kind {
        SpanKind::Action(action_type) if *action_type == ActionType::FLOW => {
            context.with_extension(Arc::new(FlowName(name.to_owned())))
        }
        _ => context,
    };
    (context, recorder)
}

/// A span as listeners see it, while it runs.
#[derive(Debug)]
struct Recording(Mutex<SpanRecord>);

impl Recording {
    fn new(name: &str, parent: Option<&Self>) -> Self {
        let parent = parent.map(|parent| parent.lock().ids);
        let ids = SpanIds {
            trace: parent.map_or_else(TraceId::random, |parent| parent.trace),
            span: SpanId::random(),
        };
        Self(Mutex::new(SpanRecord {
            ids,
            parent: parent.map(|parent| parent.span),
            name: name.to_owned(),
            started_at: SystemTime::now(),
            ended_at: None,
            attributes: serde_json::Map::new(),
            failure: None,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, SpanRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text recorded in place of a secret.
const REDACTED: &str = "<redacted>";

/// Returns the context's values as JSON, with credentials replaced by [`REDACTED`].
fn redacted(context: &Context) -> String {
    let mut values = context.values().clone();
    for secret in ["auth", "secrets"] {
        if let Some(value) = values.get_mut(secret) {
            *value = Value::from(REDACTED);
        }
    }
    Value::Object(values).to_string()
}

fn record_failure(recorder: &SpanRecorder, error: Error) -> Error {
    // An error passes through every span around its origin; only the first one is the source.
    if !error.is_traced() {
        recorder.flag("genkit:isFailureSource");
    }
    recorder.fail(error.message());
    error.traced()
}

/// Adds attributes to a span, if a subscriber records it or a listener is told of it.
#[derive(Debug, Clone)]
pub struct SpanRecorder {
    span: Span,
    recording: Option<Arc<Recording>>,
}

impl SpanRecorder {
    fn new(span: Span, recording: Option<Arc<Recording>>) -> Self {
        Self { span, recording }
    }

    /// Returns the recorder of the span this code runs in.
    pub fn current() -> Self {
        let place = Context::current().extension::<SpanPlace>();
        Self::new(Span::current(), place.and_then(|place| place.recording.clone()))
    }

    /// Returns the span as `tracing` knows it.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the ids under which listeners know the span; `None` if nobody listens.
    pub fn ids(&self) -> Option<SpanIds> {
        self.recording.as_ref().map(|recording| recording.lock().ids)
    }

    /// Records an attribute for listeners alone.
    fn note(&self, name: &str, value: impl FnOnce() -> Value) {
        if let Some(recording) = &self.recording {
            recording.lock().attributes.insert(name.to_owned(), value());
        }
    }

    fn text(&self, name: &'static str, value: &str) {
        self.span.record(name, value);
        self.note(name, || value.into());
    }

    fn flag(&self, name: &'static str) {
        self.span.record(name, true);
        self.note(name, || true.into());
    }

    fn begin(&self) {
        if let Some(recording) = &self.recording {
            let record = recording.lock().clone();
            listener::each(|listener| listener.started(&record));
        }
    }

    fn end(&self) {
        if let Some(recording) = &self.recording {
            let record = {
                let mut record = recording.lock();
                record.ended_at = Some(SystemTime::now());
                record.clone()
            };
            listener::each(|listener| listener.ended(&record));
        }
    }

    fn fail(&self, failure: &str) {
        self.text("genkit:state", "error");
        self.span.record("genkit:error", failure);
        self.span.record("otel.status_code", "ERROR");
        self.span.record("otel.status_description", failure);
        if let Some(recording) = &self.recording {
            recording.lock().failure = Some(failure.to_owned());
        }
        self.end();
    }

    /// Records the input as JSON.
    pub fn input<T: Serialize + ?Sized>(&self, value: &T) {
        self.json("genkit:input", value);
    }

    /// Records the value that opened a bidirectional invocation, as JSON.
    pub fn init<T: Serialize + ?Sized>(&self, value: &T) {
        self.json("genkit:init", value);
    }

    /// Records the output as JSON.
    pub fn output<T: Serialize + ?Sized>(&self, value: &T) {
        self.json("genkit:output", value);
    }

    /// Records the session that an agent's invocation belongs to.
    pub fn session_id(&self, id: &str) {
        self.text("genkit:metadata:agent:sessionId", id);
    }

    /// Records the snapshot that a turn wrote.
    pub fn snapshot_id(&self, id: &str) {
        self.text("genkit:metadata:agent:snapshotId", id);
    }

    /// Records the session flow that wrote a snapshot, and the snapshot, under the names that session flows have for them.
    pub fn session_flow(&self, name: &str, snapshot: &str) {
        self.text("genkit:metadata:sessionFlow", name);
        self.text("genkit:metadata:snapshotId", snapshot);
    }

    fn json<T: Serialize + ?Sized>(&self, field: &'static str, value: &T) {
        if self.span.is_disabled() && self.recording.is_none() {
            return;
        }
        let text =
            serde_json::to_string(value).unwrap_or_else(|error| format!("<not serialisable: {error}>"));
        self.text(field, &without_keys(text));
    }
}

/// Returns the JSON text with API keys, which a call's settings may hold, replaced by [`REDACTED`].
fn without_keys(text: String) -> String {
    // Few texts hold a key, and parsing all of them is slow.
    if !text.contains("\"apiKey\"") {
        return text;
    }
    serde_json::from_str(&text).map_or_else(
        // What cannot be parsed cannot be searched for keys, so none of it is recorded.
        |_| REDACTED.to_owned(),
        |mut value| {
            hide_keys(&mut value);
            value.to_string()
        },
    )
}

fn hide_keys(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if name == "apiKey" && !member.is_null() {
                    *member = Value::from(REDACTED);
                } else {
                    hide_keys(member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_keys),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_key_in_the_settings_of_a_call_is_not_recorded() {
        let call = r#"{"config":{"apiKey":"sk-secret","topK":3},"messages":[{"apiKey":null}]}"#;

        let recorded = without_keys(call.to_owned());

        assert_eq!(
            recorded,
            r#"{"config":{"apiKey":"<redacted>","topK":3},"messages":[{"apiKey":null}]}"#
        );
    }
}
