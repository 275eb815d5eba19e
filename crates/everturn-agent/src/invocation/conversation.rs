//! What of a request becomes part of the conversation.

use everturn_ai::messages::Segment;
use everturn_ai::prompt::{PromptPiece, RenderedPrompt};
use everturn_ai::{Feature, History, Message, Messages, Part, Role, metadata};

/// Marks messages of the prompt in a request. It reaches the model's request and never a stored conversation.
const PREAMBLE: &str = "_everturn_prompt";

/// The request's messages, with the prompt's own marked. The conversation stays shared.
pub(super) fn marked(rendered: &RenderedPrompt) -> Messages {
    let mut request = Messages::new();
    for piece in rendered.pieces() {
        match piece {
            PromptPiece::Conversation(messages) => request.append(messages.clone()),
            PromptPiece::Prompt(messages) => {
                request.extend(
                    messages
                        .iter()
                        .map(|message| message.clone().with_metadata_entry(PREAMBLE, true)),
                );
            }
        }
    }
    request
}

/// What the request holds beside the prompt: the conversation, tool calls and their answers.
///
/// A segment that is shared with the conversation is kept without being looked at, so this costs what the turn added.
pub(super) fn conversation_of(request: &Messages, history: &History) -> Messages {
    let mut kept = Messages::new();
    let mut start = 0;
    for segment in request.segments() {
        let (length, is_shared) = match segment {
            Segment::Run(run) => (run.len(), false),
            Segment::History {
                history: segment,
                from,
            } => (
                segment.len() - from,
                segment.shared_prefix(history) == segment.len(),
            ),
        };
        let messages = request.slice(start..start + length);
        if is_shared {
            kept.append(messages);
        } else {
            kept.extend(
                messages
                    .iter()
                    .filter(|message| is_said(message, history))
                    .map(|said| as_said(said, history)),
            );
        }
        start += length;
    }
    kept
}

/// Whether a message was said in the conversation: it is not the prompt's, nor a system message that a middleware put
/// in front of it.
fn is_said(message: &Message, history: &History) -> bool {
    if message.metadata_entry(PREAMBLE).is_some() {
        return false;
    }
    message.role() != Role::System
        || history.tally().messages_with(Feature::System) > 0
            && history.iter().any(|known| known.is_same(message))
}

/// The message as it was said: what the request added to it, to tell the model the output's form, is not part of it.
fn as_said(message: &Message, history: &History) -> Message {
    if message.tally().messages_with(Feature::OutputInstructions) == 0 {
        return message.clone();
    }
    let is_said = |part: &&Part| part.purpose() != Some(metadata::PURPOSE_OUTPUT);
    let said: Vec<Part> = message.content().iter().filter(is_said).cloned().collect();
    let said = message.clone().with_content(said);
    // The words go to the latest user message. Taking the conversation's own keeps the conversation shared.
    let latest = history.iter().rev().find(|known| known.role() == Role::User);
    latest.filter(|latest| **latest == said).cloned().unwrap_or(said)
}
