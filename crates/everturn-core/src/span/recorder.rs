//! Recording attributes and events of a span while its work runs.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::Span;

use super::listener::{self, SpanEvent, SpanLink};
use super::{SpanId, SpanIds, SpanPlace, SpanRecord, TraceId, TraceParent};
use crate::{Context, Error};

/// The text recorded in place of a secret.
pub(super) const REDACTED: &str = "<redacted>";

/// The record of a running span, for listeners.
#[derive(Debug)]
pub(super) struct Recording {
    trace_parent: TraceParent,
    record: Mutex<SpanRecord>,
}

impl Recording {
    /// Starts a span: as the child of a span of this program or of a caller's, or as the root of a new trace.
    pub(super) fn new(name: &str, parent: Option<&Self>, caller: Option<&TraceParent>) -> Self {
        let above = parent.map(|parent| &parent.trace_parent).or(caller);
        let ids = SpanIds {
            trace: above.map_or_else(TraceId::random, |above| above.ids().trace),
            span: SpanId::random(),
        };
        let (flags, state) = TraceParent::inherited(above);
        let trace_parent = TraceParent::new(ids, flags, state);
        let record = SpanRecord {
            ids,
            parent: parent.map(|parent| parent.trace_parent.ids().span),
            remote_parent: caller
                .filter(|_| parent.is_none())
                .map(|caller| caller.ids().span),
            is_sampled: trace_parent.is_sampled(),
            name: name.to_owned(),
            started_at: SystemTime::now(),
            ended_at: None,
            attributes: Map::new(),
            links: Vec::new(),
            events: Vec::new(),
            failure: None,
        };
        Self {
            trace_parent,
            record: Mutex::new(record),
        }
    }

    pub(super) fn trace_parent(&self) -> TraceParent {
        self.trace_parent.clone()
    }
}

/// Adds attributes to a span, if a subscriber or a listener observes it.
#[derive(Debug, Clone)]
pub struct SpanRecorder {
    pub(super) span: Span,
    recording: Option<Arc<Recording>>,
    /// The failure of work that returned a value; absent if the span is not observed.
    failure: Option<Arc<OnceLock<String>>>,
}

impl SpanRecorder {
    /// Returns the recorder of a span that is not observed.
    pub(super) fn blind(span: Span) -> Self {
        Self {
            span,
            recording: None,
            failure: None,
        }
    }

    pub(super) fn new(span: Span, place: &SpanPlace) -> Self {
        Self {
            span,
            recording: place.recording.clone(),
            failure: Some(Arc::clone(&place.failure)),
        }
    }

    /// Returns the recorder of the span this code runs in.
    pub fn current() -> Self {
        Self::of(&Context::current())
    }

    /// Returns the recorder of the span of an invocation.
    pub fn of(context: &Context) -> Self {
        match context.extension::<SpanPlace>() {
            Some(place) => Self::new(place.span.clone(), &place),
            None => Self::blind(Span::none()),
        }
    }

    /// Returns the `tracing` span.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the span's ids; `None` without a listener.
    pub fn ids(&self) -> Option<SpanIds> {
        self.recording
            .as_ref()
            .map(|recording| recording.trace_parent.ids())
    }

    /// Returns the span in the form in which other programs and later processes can refer to it; `None`
    /// without a listener.
    pub fn trace_parent(&self) -> Option<TraceParent> {
        self.recording.as_ref().map(|recording| recording.trace_parent())
    }

    /// Records an attribute for listeners. The value is a text, a number, a boolean or a list of one of them.
    pub fn attribute(&self, name: &str, value: impl Into<Value>) {
        self.note(name, || value.into());
    }

    /// Records a link to a related span that is not a parent; `relation` names how they are related.
    pub fn link(&self, other: &TraceParent, relation: &str) {
        if let Some(recording) = &self.recording {
            recording.record.lock().links.push(SpanLink {
                to: other.clone(),
                relation: relation.to_owned(),
            });
        }
    }

    /// Records an event at this moment.
    pub fn event(&self, name: &str, attributes: impl IntoIterator<Item = (&'static str, Value)>) {
        if let Some(recording) = &self.recording {
            let attributes = attributes.into_iter();
            recording.record.lock().events.push(SpanEvent {
                at: SystemTime::now(),
                name: name.to_owned(),
                attributes: attributes.map(|(name, value)| (name.to_owned(), value)).collect(),
            });
        }
    }

    /// Marks the span as failed although its work returns a value, because the value reports a failure.
    pub fn mark_failed(&self, error: &Error) {
        if let Some(failure) = &self.failure {
            // The first failure is the cause.
            let _ = failure.set(error.message().to_owned());
            self.attribute("error.type", error.status().name());
        }
    }

    pub(super) fn marked_failure(&self) -> Option<&str> {
        self.failure.as_ref()?.get().map(String::as_str)
    }

    /// Records an attribute for listeners alone.
    pub(super) fn note(&self, name: &str, value: impl FnOnce() -> Value) {
        if let Some(recording) = &self.recording {
            recording
                .record
                .lock()
                .attributes
                .insert(name.to_owned(), value());
        }
    }

    /// Records an attribute for listeners and for `tracing`, whose subscribers print it before each line of
    /// the span. It has to be short.
    pub(super) fn text(&self, name: &'static str, value: &str) {
        self.span.record(name, value);
        self.note(name, || value.into());
    }

    pub(super) fn begin(&self) {
        if let Some(recording) = &self.recording
            && listener::listeners_need_starts()
        {
            let record = recording.record.lock().clone();
            listener::each(|listener| listener.started(&record));
        }
    }

    pub(super) fn end(&self) {
        if let Some(recording) = &self.recording {
            let record = {
                let mut record = recording.record.lock();
                record.ended_at = Some(SystemTime::now());
                let next = record.remains();
                // The span has ended, so the record is moved out instead of copied.
                Arc::new(std::mem::replace(&mut *record, next))
            };
            listener::each(|listener| listener.ended(&record));
        }
    }

    pub(super) fn fail(&self, failure: &str) {
        self.note("genkit:state", || "error".into());
        self.span.record("otel.status_code", "ERROR");
        self.span.record("otel.status_description", failure);
        if let Some(recording) = &self.recording {
            recording.record.lock().failure = Some(failure.to_owned());
        }
        self.end();
    }

    /// Records the input as JSON, for listeners that want content.
    pub fn input<T: Serialize + ?Sized>(&self, value: &T) {
        self.content("genkit:input", value);
    }

    /// Records the value that opened a bidirectional invocation as JSON, for listeners that want content.
    pub fn init<T: Serialize + ?Sized>(&self, value: &T) {
        self.content("genkit:init", value);
    }

    /// Records the output as JSON, for listeners that want content.
    pub fn output<T: Serialize + ?Sized>(&self, value: &T) {
        self.content("genkit:output", value);
    }

    /// Records the session that an agent's invocation belongs to, and notifies listeners.
    pub fn session_id(&self, id: &str) {
        self.text("genkit:metadata:agent:sessionId", id);
        // A reader that looks for the session finds the span while it runs.
        self.begin();
    }

    /// Records the snapshot that a turn wrote.
    pub fn snapshot_id(&self, id: &str) {
        self.text("genkit:metadata:agent:snapshotId", id);
    }

    /// Records the session flow that wrote a snapshot, and the snapshot, under the attribute names of session
    /// flows.
    pub fn session_flow(&self, name: &str, snapshot: &str) {
        self.attribute("genkit:metadata:sessionFlow", name);
        self.attribute("genkit:metadata:snapshotId", snapshot);
    }

    /// Records the input or output of a call. It is never passed to `tracing`, whose log lines would print
    /// all of it.
    fn content<T: Serialize + ?Sized>(&self, field: &'static str, value: &T) {
        if self.recording.is_none() || !listener::listeners_need_content() {
            return;
        }
        let text =
            serde_json::to_string(value).unwrap_or_else(|error| format!("<not serialisable: {error}>"));
        self.note(field, || without_keys(text).into());
    }
}

/// Returns the context's values as JSON, with credentials replaced by [`REDACTED`].
pub(super) fn redacted(context: &Context) -> String {
    let mut values = context.values().clone();
    for secret in ["auth", "secrets"] {
        if let Some(value) = values.get_mut(secret) {
            *value = Value::from(REDACTED);
        }
    }
    Value::Object(values).to_string()
}

/// Returns the JSON text with API keys, which a call's settings may hold, replaced by [`REDACTED`].
fn without_keys(text: String) -> String {
    // Few texts hold a key, and parsing all of them is slow.
    if !text.contains("\"apiKey\"") {
        return text;
    }
    serde_json::from_str(&text).map_or_else(
        // Text that cannot be parsed cannot be searched for keys, so none of it is recorded.
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
