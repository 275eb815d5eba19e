//! One span per action and step, with the attribute names that the developer tools read.
//!
//! Spans are ordinary [`tracing`] spans, so any subscriber sees them and an OpenTelemetry layer exports them unchanged:
//! the dynamic name travels in `otel.name`, the outcome in `otel.status_code`. Inputs and outputs are serialised only
//! when a subscriber records the span.

use std::future::Future;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tracing::field::Empty;
use tracing::{Instrument, Span};

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

    fn subtype(self) -> Option<String> {
        match self {
            Self::Action(action_type) => Some(action_type.as_str().to_owned()),
            _ => None,
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

/// The path of an invocation's span in the tree of spans; an extension of the context.
struct SpanPath(String);

/// A callback that receives the outermost span of an invocation when it begins; an extension of the context.
///
/// It tells the code that starts an invocation which trace the invocation belongs to.
pub struct SpanObserver(Box<dyn Fn(&Span) + Send + Sync>);

impl SpanObserver {
    /// Creates an observer that passes the span to `function`.
    pub fn new(function: impl Fn(&Span) + Send + Sync + 'static) -> Self {
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
    let recorder = SpanRecorder(span.clone());
    if span.is_disabled() {
        let work = in_box(context.clone(), || work(context, recorder));
        return work.await;
    }

    let context = enter(name, kind, context, &span);
    let mut unfinished = Unfinished(Some(&span));
    let work = in_box(context.clone(), || work(context, recorder));
    let result = work.instrument(span.clone()).await;
    unfinished.0 = None;
    match result {
        Ok(value) => {
            span.record("genkit:state", "success");
            span.record("otel.status_code", "OK");
            Ok(value)
        }
        Err(error) => Err(record_failure(&span, error)),
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
    if span.is_disabled() {
        return error;
    }
    enter(name, kind, context, &span);
    record_failure(&span, error)
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
    )
}

/// Marks its span as failed when it is dropped before the work has ended. The work was then cut short from outside and
/// returned no error, so this span is not marked as the failure's origin.
struct Unfinished<'a>(Option<&'a Span>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(span) = self.0 {
            record_error_state(span, "the work was dropped before it ended");
        }
    }
}

/// Records the span's path and returns the context for the work inside the span.
fn enter(name: &str, kind: SpanKind<'_>, context: Context, span: &Span) -> Context {
    let parent = context.extension::<SpanPath>();
    let mut path = parent.as_ref().map(|path| path.0.clone()).unwrap_or_default();
    path.push_str(&kind.segment(name));
    span.record("genkit:path", path.as_str());
    if parent.is_none() {
        span.record("genkit:isRoot", true);
        if let Some(observer) = context.extension::<SpanObserver>() {
            (observer.0)(span);
        }
    }
    if let Some(subtype) = kind.subtype() {
        span.record("genkit:metadata:subtype", subtype);
    }
    if !context.values().is_empty() {
        span.record("genkit:metadata:context", redacted(&context));
    }
    if let Some(flow) = context.extension::<FlowName>() {
        span.record("genkit:metadata:flow:name", flow.0.as_str());
    }
    let context = context.with_extension(Arc::new(SpanPath(path)));
    match kind {
        SpanKind::Action(action_type) if *action_type == ActionType::FLOW => {
            context.with_extension(Arc::new(FlowName(name.to_owned())))
        }
        _ => context,
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

fn record_failure(span: &Span, error: Error) -> Error {
    record_error_state(span, error.message());
    if !error.is_traced() {
        span.record("genkit:isFailureSource", true);
    }
    error.traced()
}

fn record_error_state(span: &Span, failure: &str) {
    span.record("genkit:state", "error");
    span.record("genkit:error", failure);
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", failure);
}

/// Adds attributes to a span, if a subscriber records it.
#[derive(Debug, Clone)]
pub struct SpanRecorder(Span);

impl SpanRecorder {
    /// Returns the recorder of the span this code runs in.
    pub fn current() -> Self {
        Self(Span::current())
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
        self.0.record("genkit:metadata:agent:sessionId", id);
    }

    /// Records the snapshot that a turn wrote.
    pub fn snapshot_id(&self, id: &str) {
        self.0.record("genkit:metadata:agent:snapshotId", id);
    }

    fn json<T: Serialize + ?Sized>(&self, field: &'static str, value: &T) {
        if self.0.is_disabled() {
            return;
        }
        let text =
            serde_json::to_string(value).unwrap_or_else(|error| format!("<not serialisable: {error}>"));
        self.0.record(field, without_keys(text));
    }
}

/// Returns the JSON text with API keys, which a call's settings may hold, replaced by [`REDACTED`].
fn without_keys(text: String) -> String {
    if !text.contains("\"apiKey\"") {
        return text;
    }
    serde_json::from_str(&text).map_or_else(
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
