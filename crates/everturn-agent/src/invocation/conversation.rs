//! Separating the conversation in a model's request from the prompt around it.

use everturn_ai::prompt::{PromptPiece, RenderedPrompt};
use everturn_ai::{Feature, History, Message, Messages, Part, Role, metadata};

/// Returns the messages of a rendered prompt with the prompt's own marked. The conversation among them stays
/// shared.
pub(super) fn marked(rendered: &RenderedPrompt) -> Messages {
    let mut request = Messages::new();
    for piece in rendered.pieces() {
        match piece {
            PromptPiece::Conversation(messages) => request.append(messages.clone()),
            PromptPiece::Prompt(messages) => {
                request.extend(
                    messages
                        .iter()
                        .map(|message| message.clone().with_metadata_entry(metadata::PROMPT, true)),
                );
            }
        }
    }
    request
}

/// Returns the conversation up to this request, and the messages that other code added to the session
/// meanwhile: `present` are the session's messages, `history` is the conversation of the model request.
pub(super) fn conversation_so_far(present: &History, history: &History, request: &Messages) -> Messages {
    let mut conversation = conversation_of(request, history);
    // If the session's messages were replaced meanwhile, there is no common beginning to append after.
    if present.shared_prefix(history) == history.len() {
        conversation.extend(present.since(history.len()).cloned());
    }
    conversation
}

/// Returns the request's messages without the prompt's: the conversation, tool calls and their answers.
///
/// A piece that is shared with `history` is kept without reading it, so this costs as much as the turn added.
fn conversation_of(request: &Messages, history: &History) -> Messages {
    let mut kept = Messages::new();
    for (messages, is_shared) in request.pieces_shared_with(&Messages::from(history)) {
        if is_shared {
            kept.append(messages);
        } else {
            kept.extend(
                messages
                    .iter()
                    .filter(|message| belongs_to(message, history))
                    .map(|message| without_output_instructions(message, history)),
            );
        }
    }
    kept
}

/// Returns whether a message belongs to the conversation: it is neither the prompt's nor a system message
/// that a middleware added.
fn belongs_to(message: &Message, history: &History) -> bool {
    if message.metadata_entry(metadata::PROMPT).is_some() {
        return false;
    }
    message.role() != Role::System
        || history.stats().messages_with(Feature::System) > 0
            && history.iter().any(|known| known.is_same(message))
}

/// Returns the message without the instructions that the request added to it about the output's form.
fn without_output_instructions(message: &Message, history: &History) -> Message {
    if message.stats().messages_with(Feature::OutputInstructions) == 0 {
        return message.clone();
    }
    let is_own = |part: &&Part| part.purpose() != Some(metadata::PURPOSE_OUTPUT);
    let own: Vec<Part> = message.content().iter().filter(is_own).cloned().collect();
    let own = message.clone().with_content(own);
    // Instructions are added to the latest user message. Returning the conversation's own message keeps it
    // shared.
    let latest = history.iter().rev().find(|known| known.role() == Role::User);
    latest.filter(|latest| **latest == own).cloned().unwrap_or(own)
}
