//! Middleware: code around each round of a generation, each model call and each tool call.
//!
//! A [`Middleware`] is a bundle of hooks created for one generate call, so its state spans all rounds of that
//! call and nothing else. In a list of several the first is the outermost for every hook. A middleware is
//! used as a value, as a closure (see [`model_hook`]), or by name through a [`MiddlewareDefinition`] in the
//! registry; `.prompt` files and remote callers use names.

mod hooks;
mod source;

pub use self::hooks::{
    GenerateHook, GenerateRound, Middleware, ModelCall, ModelHook, Next, NextModel, NextRound, NextTool,
    ToolCall, ToolHook, generate_hook, model_hook, tool_hook,
};
pub use self::source::{
    Delegate, IntoMiddleware, MiddlewareDefinition, MiddlewareSource, define_middleware,
    middleware_descriptions,
};
use crate::{Feature, Message, Messages, Part};

/// Puts `text` into the system prompt as a part marked with the metadata entry `marker: true`.
///
/// A part with that mark is replaced in place; without one, the text goes to the end of the first system
/// message, or into a new system message at the start. Other holders of the conversation do not see the
/// change.
pub fn place_system_part(messages: &mut Messages, marker: &str, text: impl Into<String>) {
    let part = Part::text(text).with_metadata_entry(marker, true);
    let first = messages.next_with(Feature::System, 0);
    let mut candidate = first;
    while let Some(index) = candidate {
        let is_own = |part: &Part| part.metadata_entry(marker).is_some();
        let place = |message: &Message| message.content().iter().position(is_own);
        if let Some((message, place)) = messages
            .get(index)
            .and_then(|message| Some((message, place(message)?)))
        {
            if message.content()[place] != part {
                let mut content = message.content().to_vec();
                content[place] = part;
                let changed = message.clone().with_content(content);
                messages.replace(index, changed);
            }
            return;
        }
        candidate = messages.next_with(Feature::System, index + 1);
    }
    match first.and_then(|index| Some((index, messages.get(index)?.clone()))) {
        Some((index, message)) => messages.replace(index, message.with_part(part)),
        None => messages.splice(0..0, [Message::system(part)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_is_added_once_and_then_exchanged() {
        let mut messages = Messages::from([Message::system("You cook."), Message::user("hi")]);

        place_system_part(&mut messages, "listing", "one");
        place_system_part(&mut messages, "listing", "two");

        assert_eq!(messages.len(), 2);
        assert_eq!(messages.first().unwrap().text(), "You cook.two");
    }

    #[test]
    fn a_conversation_without_a_system_message_gets_one_in_front() {
        let mut messages = Messages::from(Message::user("hi"));

        place_system_part(&mut messages, "listing", "one");

        assert_eq!(
            messages.first(),
            Some(&Message::system(
                Part::text("one").with_metadata_entry("listing", true)
            ))
        );
    }
}
