//! OpenTelemetry's semantic conventions for generative AI.

use everturn_core::SpanRecord;
use opentelemetry::KeyValue;

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
pub(crate) fn asks_a_model(span: &SpanRecord) -> bool {
    matches!(Operation::of(span), Some(Operation::Chat | Operation::Embeddings))
}

/// Returns the attributes of the conventions, except for the token counts, which spans have already.
pub(crate) fn attributes(span: &SpanRecord) -> Vec<KeyValue> {
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
