//! A conversation as text, for the model that summarises it.

use std::fmt::Write;

use serde_json::Value;

use crate::{Message, PartKind, Role};

/// The most characters of an argument, an output or another value in a transcript.
const MAX_VALUE_CHARS: usize = 2_000;

/// Returns the messages as text, the last ones if all of them have more than `max_bytes`.
pub(super) fn transcript(messages: impl Iterator<Item = Message>, max_bytes: usize) -> String {
    let mut texts: Vec<String> = messages.map(|message| lines(&message)).collect();
    let mut bytes = 0;
    let fitting = texts.iter().rev().take_while(|text| {
        bytes += text.len();
        bytes <= max_bytes
    });
    let left_out = texts.len() - fitting.count();
    let kept = texts.split_off(left_out.min(texts.len().saturating_sub(1)));
    kept.concat()
}

fn lines(message: &Message) -> String {
    let speaker = match message.role() {
        Role::User => "User",
        Role::Model => "Assistant",
        Role::System => "System",
        Role::Tool => "Tool",
    };
    let mut text = String::new();
    for part in message.content() {
        // Writing to a string does not fail.
        let _ = match part.kind() {
            PartKind::Text(content) => writeln!(text, "{speaker}: {content}"),
            PartKind::Media(media) => {
                writeln!(text, "{speaker}: [{}]", media.mime_type().unwrap_or("a file"))
            }
            PartKind::ToolRequest(request) => {
                writeln!(text, "Call of {}: {}", request.name, json(request.input.as_ref()))
            }
            PartKind::ToolResponse(response) => {
                writeln!(
                    text,
                    "Answer of {}: {}",
                    response.name,
                    json(response.output.as_ref())
                )
            }
            PartKind::Data(data) => writeln!(text, "{speaker}: {}", json(Some(data))),
            PartKind::Resource(link) => writeln!(text, "{speaker}: [{}]", link.uri),
            // Reasoning led to the text that follows, and only the provider can interpret the others.
            PartKind::Reasoning(_) | PartKind::Custom(_) | PartKind::Unknown(_) => Ok(()),
        };
    }
    text
}

/// Returns the beginning of a value's JSON; nothing if there is no value.
fn json(value: Option<&Value>) -> String {
    let mut text = value.map(ToString::to_string).unwrap_or_default();
    if let Some((end, _)) = text.char_indices().nth(MAX_VALUE_CHARS) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Part, ToolRequest};

    #[test]
    fn every_part_of_a_conversation_is_a_line() {
        let messages = [
            Message::user("Leeks?"),
            Message::model([
                Part::reasoning("Hm."),
                Part::tool_request(ToolRequest::new("season", json!({"month": 3}))),
            ]),
        ];

        assert_eq!(
            transcript(messages.into_iter(), 1_000),
            "User: Leeks?\nCall of season: {\"month\":3}\n"
        );
    }

    #[test]
    fn the_end_is_kept_if_all_is_too_long() {
        let messages = || ["one", "two", "three"].map(Message::user).into_iter();

        assert_eq!(transcript(messages(), 22), "User: two\nUser: three\n");
        assert_eq!(transcript(messages(), 1), "User: three\n");
    }
}
