//! Spans in the format of OpenTelemetry's exporters, with the attributes of its semantic conventions for
//! generative AI.

use std::borrow::Cow;
use std::sync::Arc;

use everturn_core::{SpanIds, SpanLink, SpanRecord};
use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use serde_json::{Map, Value as Json};

/// Filters the exported content: given the attribute's name and its JSON, returns the text to export.
pub(crate) type Redaction = Arc<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

/// Returns a span for the exporter. Content is omitted unless `redaction` returns it.
pub(crate) fn span_data(span: &SpanRecord, redaction: Option<&Redaction>) -> SpanData {
    let parent = span.parent.or(span.remote_parent);
    let mut attributes: Vec<_> = span
        .attributes
        .iter()
        .filter_map(|(name, value)| {
            if !SpanRecord::CONTENT.contains(&name.as_str()) {
                return attribute(name, value);
            }
            let text = redaction?(name, value.as_str()?)?;
            Some(KeyValue::new(name.clone(), text))
        })
        .collect();
    attributes.extend(gen_ai_attributes(span));
    let ended_at = span.ended_at.unwrap_or(span.started_at);
    let mut events = SpanEvents::default();
    events.events = span
        .events
        .iter()
        .map(|event| Event::new(event.name.clone(), event.at, all(&event.attributes), 0))
        .collect();
    if let Some(failure) = &span.failure {
        let kind = span.attributes.get("error.type").and_then(Json::as_str);
        let attributes = vec![
            KeyValue::new("exception.type", kind.unwrap_or("Error").to_owned()),
            KeyValue::new("exception.message", failure.clone()),
        ];
        events
            .events
            .push(Event::new("exception", ended_at, attributes, 0));
    }
    let mut links = SpanLinks::default();
    links.links = span.links.iter().map(link).collect();
    SpanData {
        span_context: context(span.ids, true, false),
        parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.to_bytes())),
        parent_span_is_remote: span.parent.is_none() && span.remote_parent.is_some(),
        span_kind: kind(span),
        name: Cow::Owned(span.name.clone()),
        start_time: span.started_at,
        end_time: ended_at,
        attributes,
        dropped_attributes_count: 0,
        events,
        links,
        status: match &span.failure {
            Some(failure) => Status::error(failure.clone()),
            None => Status::Unset,
        },
        instrumentation_scope: scope(),
    }
}

/// Returns the instrumentation scope of all exported items.
pub(crate) fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("everturn")
        .with_version(env!("CARGO_PKG_VERSION"))
        .build()
}

fn kind(span: &SpanRecord) -> SpanKind {
    if asks_a_model(span) {
        SpanKind::Client
    } else if span.remote_parent.is_some() {
        SpanKind::Server
    } else {
        SpanKind::Internal
    }
}

fn context(ids: SpanIds, is_sampled: bool, is_remote: bool) -> SpanContext {
    let flags = if is_sampled {
        TraceFlags::SAMPLED
    } else {
        TraceFlags::default()
    };
    SpanContext::new(
        TraceId::from_bytes(ids.trace.to_bytes()),
        SpanId::from_bytes(ids.span.to_bytes()),
        flags,
        is_remote,
        TraceState::default(),
    )
}

fn link(link: &SpanLink) -> Link {
    let relation = KeyValue::new("everturn.relation", link.relation.clone());
    Link::new(
        context(link.to.ids(), link.to.is_sampled(), true),
        vec![relation],
        0,
    )
}

fn all(attributes: &Map<String, Json>) -> Vec<KeyValue> {
    let attributes = attributes.iter();
    attributes
        .filter_map(|(name, value)| attribute(name, value))
        .collect()
}

fn attribute(name: &str, value: &Json) -> Option<KeyValue> {
    let value = match value {
        Json::Null => return None,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::String(text) => Value::String(text.clone().into()),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::I64(number),
            None => Value::F64(number.as_f64()?),
        },
        Json::Array(items) => Value::Array(Array::String(items.iter().map(item).collect())),
        Json::Object(_) => Value::String(value.to_string().into()),
    };
    Some(KeyValue::new(name.to_owned(), value))
}

fn item(item: &Json) -> StringValue {
    match item {
        Json::String(text) => text.clone().into(),
        other => other.to_string().into(),
    }
}

/// The kinds of span in the conventions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Chat,
    Embeddings,
    ExecuteTool,
    InvokeAgent,
}

impl Operation {
    fn of(span: &SpanRecord) -> Option<Self> {
        match text(span, "genkit:metadata:subtype")? {
            "model" | "background-model" => Some(Self::Chat),
            "embedder" => Some(Self::Embeddings),
            "tool" | "tool.v2" => Some(Self::ExecuteTool),
            "agent" => Some(Self::InvokeAgent),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embeddings => "embeddings",
            Self::ExecuteTool => "execute_tool",
            Self::InvokeAgent => "invoke_agent",
        }
    }
}

fn text<'a>(span: &'a SpanRecord, attribute: &str) -> Option<&'a str> {
    span.attributes.get(attribute)?.as_str()
}

/// Returns whether the span is a call to a model, which counts as another program.
fn asks_a_model(span: &SpanRecord) -> bool {
    matches!(Operation::of(span), Some(Operation::Chat | Operation::Embeddings))
}

/// Returns the attributes of the conventions, except for the token counts, which spans have already.
fn gen_ai_attributes(span: &SpanRecord) -> Vec<KeyValue> {
    let mut attributes = Vec::new();
    let mut add = |name: &'static str, value: &str| attributes.push(KeyValue::new(name, value.to_owned()));
    if let Some(session) = text(span, "genkit:metadata:agent:sessionId") {
        add("gen_ai.conversation.id", session);
    }
    let Some(operation) = Operation::of(span) else {
        return attributes;
    };
    add("gen_ai.operation.name", operation.name());
    match operation {
        Operation::Chat | Operation::Embeddings => {
            // The name of a plugin's model begins with the plugin's name.
            let (provider, model) = span.name.split_once('/').unwrap_or(("everturn", &span.name));
            add("gen_ai.provider.name", provider);
            add("gen_ai.request.model", model);
        }
        Operation::ExecuteTool => {
            add("gen_ai.tool.name", &span.name);
            add("gen_ai.tool.type", "function");
        }
        Operation::InvokeAgent => add("gen_ai.agent.name", &span.name),
    }
    attributes
}
