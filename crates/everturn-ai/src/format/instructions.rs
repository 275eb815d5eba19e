//! Instructions that describe the form of the output to a model.

use super::{FormatConfig, FormatHandler};
use crate::{Feature, Message, Messages, OutputInstructions, Part, Role, metadata};

/// Returns the instructions for the model: the caller's, the format's, or none.
pub fn resolve_instructions(
    asked: Option<&OutputInstructions>,
    config: &FormatConfig,
    handler: &dyn FormatHandler,
) -> Option<String> {
    match asked {
        Some(OutputInstructions::Text(text)) => Some(text.clone()),
        Some(OutputInstructions::Enabled(true)) => handler.instructions(),
        None if config.default_instructions => handler.instructions(),
        Some(OutputInstructions::Enabled(false)) | None => None,
    }
}

/// Adds format instructions to a request, and returns whether they were added.
///
/// They replace the placeholder that a template contains for them. Without one they are appended to the first
/// system message, or else to the last user message. Nothing is added if the messages already contain
/// instructions, or if neither message exists. Only one message is replaced; a history that the request
/// shares is neither changed nor copied.
pub fn inject_instructions(messages: &mut Messages, instructions: &str) -> bool {
    if messages.any_with(Feature::OutputInstructions) {
        return false;
    }
    let target = messages
        .next_with(Feature::PendingOutput, 0)
        .or_else(|| messages.next_with(Feature::System, 0))
        .or_else(|| messages.rposition(|message| message.role() == Role::User));
    let Some((index, message)) = target.and_then(|index| Some((index, messages.get(index)?))) else {
        return false;
    };
    let changed = with_instructions(message, instructions);
    messages.replace(index, changed);
    true
}

fn with_instructions(message: &Message, instructions: &str) -> Message {
    let part = Part::text(instructions).with_metadata_entry(metadata::PURPOSE, metadata::PURPOSE_OUTPUT);
    let mut content = message.content().to_vec();
    let is_place = |part: &Part| part.purpose() == Some(metadata::PURPOSE_OUTPUT) && part.is_pending();
    match content.iter_mut().find(|part| is_place(part)) {
        Some(place) => *place = part,
        None => content.push(part),
    }
    message.clone().with_content(content)
}
