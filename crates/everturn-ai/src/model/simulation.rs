//! Simulating what a model does not support: documents, an output schema and a system prompt are written into
//! the conversation.

use std::fmt::Write as _;

use serde_json::Value;

use crate::format::{Format, JsonFormat, inject_instructions};
use crate::{
    ConstrainedSupport, Document, Feature, Message, ModelRequest, OutputConfig, Part, Role, metadata,
};

/// The wording with which documents are written into a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextAugmentation {
    /// The text before the documents.
    pub preface: String,
    /// The name of a document.
    pub citation: Citation,
}

/// The name of a document, so that an answer can refer to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Citation {
    /// By its metadata entry `ref` or `id`, else by its index.
    #[default]
    Automatic,
    /// By this entry of its metadata, else as [`Citation::Automatic`].
    Key(String),
    /// Unnamed.
    None,
}

impl Default for ContextAugmentation {
    fn default() -> Self {
        Self {
            preface: "\n\nUse the following information to complete your task:\n\n".to_owned(),
            citation: Citation::default(),
        }
    }
}

/// Adds the request's documents as text to the last user message.
///
/// They replace the placeholder of a template, or else are appended to the message. Nothing happens if there
/// are no documents or no user message, or if that message already has them.
pub fn augment_with_context(mut request: ModelRequest, options: &ContextAugmentation) -> ModelRequest {
    let is_context = |part: &Part| part.purpose() == Some(metadata::PURPOSE_CONTEXT);
    let target = || {
        let index = request
            .messages
            .rposition(|message| message.role() == Role::User)?;
        Some((index, request.messages.get(index)?))
    };
    let (false, Some((index, message))) = (request.docs().is_empty(), target()) else {
        return request;
    };
    let place = message.content().iter().position(is_context);
    if place.is_some_and(|place| !message.content()[place].is_pending()) {
        return request;
    }
    let part = Part::text(written(request.docs(), options))
        .with_metadata_entry(metadata::PURPOSE, metadata::PURPOSE_CONTEXT);
    let changed = exchanged(message, place, part);
    request.messages.replace(index, changed);
    request
}

fn exchanged(message: &Message, place: Option<usize>, part: Part) -> Message {
    let mut content = message.content().to_vec();
    match place {
        Some(place) => content[place] = part,
        None => content.push(part),
    }
    message.clone().with_content(content)
}

fn written(documents: &[Document], options: &ContextAugmentation) -> String {
    let mut text = options.preface.clone();
    for (index, document) in documents.iter().enumerate() {
        let written = match citation(document, index, &options.citation) {
            Some(name) => writeln!(text, "- [{name}]: {}", document.text()),
            None => writeln!(text, "- {}", document.text()),
        };
        written.expect("writing to a string does not fail");
    }
    text.push('\n');
    text
}

fn citation(document: &Document, index: usize, citation: &Citation) -> Option<String> {
    let entry = |key: &str| match document.metadata.as_ref()?.get(key)? {
        Value::Null => None,
        Value::String(name) => Some(name.clone()),
        other => Some(other.to_string()),
    };
    let automatic = || {
        entry("ref")
            .or_else(|| entry("id"))
            .unwrap_or_else(|| index.to_string())
    };
    match citation {
        Citation::None => None,
        Citation::Automatic => Some(automatic()),
        Citation::Key(key) => Some(entry(key).unwrap_or_else(automatic)),
    }
}

/// Returns whether a request needs an enforced schema that a model with this support cannot enforce.
pub fn needs_simulation(request: &ModelRequest, support: Option<ConstrainedSupport>) -> bool {
    let asks = request
        .output
        .as_ref()
        .is_some_and(|output| output.constrained == Some(true) && output.schema.is_some());
    let enforces = match support {
        None | Some(ConstrainedSupport::None) => false,
        Some(ConstrainedSupport::NoTools) => request.tools().is_empty(),
        Some(ConstrainedSupport::All) => true,
    };
    asks && !enforces
}

/// Describes the schema in the prompt, unless the request already does, and removes the schema from the
/// request.
pub fn simulate_constrained(mut request: ModelRequest) -> ModelRequest {
    let schema = request.output.as_ref().and_then(|output| output.schema.as_ref());
    let instructions = JsonFormat
        .handler(schema)
        .ok()
        .and_then(|handler| handler.instructions());
    if let Some(instructions) = instructions {
        inject_instructions(&mut request.messages, &instructions);
    }
    request.output = Some(OutputConfig {
        constrained: Some(false),
        ..OutputConfig::default()
    });
    request
}

/// The words around a simulated system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemPromptWording {
    /// The beginning of the user message with the instructions.
    pub preface: String,
    /// The model's acknowledgement.
    pub acknowledgement: String,
}

impl Default for SystemPromptWording {
    fn default() -> Self {
        Self {
            preface: "SYSTEM INSTRUCTIONS:\n".to_owned(),
            acknowledgement: "Understood.".to_owned(),
        }
    }
}

/// Turns the first system message into a user message and a model message that acknowledges it.
pub fn simulate_system_prompt(request: ModelRequest) -> ModelRequest {
    simulate_system_prompt_with(request, &SystemPromptWording::default())
}

/// Like [`simulate_system_prompt`], with another wording.
pub fn simulate_system_prompt_with(mut request: ModelRequest, wording: &SystemPromptWording) -> ModelRequest {
    let Some(index) = request.messages.next_with(Feature::System, 0) else {
        return request;
    };
    let instructions = request
        .messages
        .get(index)
        .map(Message::content)
        .unwrap_or_default();
    let preface = Part::text(&wording.preface);
    let instructions = Message::user(
        std::iter::once(preface)
            .chain(instructions.iter().cloned())
            .collect::<Vec<_>>(),
    );
    let understood = Message::model(wording.acknowledgement.as_str());
    request
        .messages
        .splice(index..index + 1, [instructions, understood]);
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JsonObject, Message, Role, ToolDefinition};
    use serde_json::json;
    use std::sync::Arc;

    fn request(content: Vec<Part>) -> ModelRequest {
        let named = |key: &str| JsonObject::from_iter([(key.to_owned(), json!("N"))]);
        let docs = [
            Document::from("d0").with_metadata(named("id")),
            Document::from("d1"),
        ];
        ModelRequest {
            docs: Some(Arc::from(docs)),
            ..ModelRequest::new(Message::user(content))
        }
    }

    #[test]
    fn documents_are_named_and_the_callers_message_is_left_alone() {
        let original = request(vec![Part::text("q")]);

        let augmented = augment_with_context(original.clone(), &ContextAugmentation::default());

        let text = augmented.messages.last().unwrap().text().into_owned();
        assert!(text.ends_with("- [N]: d0\n- [1]: d1\n\n"), "{text}");
        assert_eq!(original.messages.last().unwrap().content().len(), 1);
    }

    #[test]
    fn a_kept_place_is_used_and_present_documents_are_not_repeated() {
        let place = |pending: bool| {
            Part::text("")
                .with_metadata_entry("purpose", "context")
                .with_metadata_entry("pending", pending)
        };

        let kept = augment_with_context(
            request(vec![place(true), Part::text("q")]),
            &ContextAugmentation::default(),
        );
        let present = request(vec![place(false), Part::text("q")]);

        assert!(
            kept.messages.last().unwrap().content()[0]
                .as_text()
                .unwrap()
                .contains("d0")
        );
        assert_eq!(
            augment_with_context(present.clone(), &ContextAugmentation::default()),
            present
        );
    }

    fn constrained_request() -> ModelRequest {
        let output = OutputConfig {
            schema: Some(json!({ "type": "object" })),
            constrained: Some(true),
            ..OutputConfig::default()
        };
        ModelRequest {
            output: Some(output),
            ..ModelRequest::new(Message::user("q"))
        }
    }

    #[test]
    fn a_schema_is_simulated_only_where_the_model_cannot_enforce_it() {
        let with_tools = ModelRequest {
            tools: Some(Arc::from([ToolDefinition::default()])),
            ..constrained_request()
        };

        assert!(needs_simulation(&constrained_request(), None));
        assert!(!needs_simulation(
            &constrained_request(),
            Some(ConstrainedSupport::NoTools)
        ));
        assert!(needs_simulation(&with_tools, Some(ConstrainedSupport::NoTools)));
        assert!(!needs_simulation(&with_tools, Some(ConstrainedSupport::All)));
    }

    #[test]
    fn the_words_take_the_schemas_place() {
        let simulated = simulate_constrained(constrained_request());

        let output = simulated.output.unwrap();
        assert_eq!(
            output,
            OutputConfig {
                constrained: Some(false),
                ..OutputConfig::default()
            }
        );
        let instructions = &simulated.messages.last().unwrap().content()[1];
        assert_eq!(instructions.purpose(), Some("output"));
    }

    #[test]
    fn only_the_first_system_message_is_replaced_and_only_in_the_copy() {
        let original = ModelRequest::new([Message::system("a"), Message::user("hi"), Message::system("b")]);

        let simulated = simulate_system_prompt(original.clone());

        let roles: Vec<_> = simulated.messages.iter().map(Message::role).collect();
        assert_eq!(roles, [Role::User, Role::Model, Role::User, Role::System]);
        assert_eq!(
            simulated.messages.first().unwrap().text(),
            "SYSTEM INSTRUCTIONS:\na"
        );
        assert_eq!(original.messages.first().unwrap().role(), Role::System);
    }
}
