//! Writing documents into the conversation for a model without support for them.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{Document, Message, ModelRequest, Part, Role, metadata};

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::JsonObject;

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
}
