//! The inputs of a turn as items.

use everturn_agent::AgentInput;
use everturn_ai::{Message, Part, Role, ToolResponse, metadata};
use everturn_server::{MessagePosition, WaitingCall};
use serde_json::{Value, json};

use crate::response::plain_text;

/// Returns the inputs among the messages that a turn added. `from` is the position of the first one, `name`
/// the turn's name, and `asked` the calls that waited before the turn.
pub(super) fn inputs_of(from: usize, messages: &[Message], name: &str, asked: &[WaitingCall]) -> Vec<Value> {
    let mut inputs = Vec::new();
    for (offset, message) in messages.iter().enumerate() {
        let id = |kind: &str, number: usize| {
            let message = from + offset;
            MessagePosition::new(message, number).id(kind, name)
        };
        match message.role() {
            Role::User => inputs.push(json!({
                "id": id("msg", 0),
                "type": "message",
                "role": "user",
                "status": "completed",
                "content": message.content().iter().filter_map(input_part).collect::<Vec<_>>(),
            })),
            Role::Tool => {
                for (number, part) in message.content().iter().enumerate() {
                    let Some(response) = part.as_tool_response() else {
                        continue;
                    };
                    let open = asked.iter().find(|open| is_answered(open, response));
                    inputs.extend(answer(part, response, open, |kind| id(kind, number)));
                }
            }
            Role::System | Role::Model => {}
        }
    }
    inputs
}

/// Returns the messages that an input will add to its conversation.
pub(super) fn input_messages(input: &AgentInput) -> Vec<Message> {
    let mut messages: Vec<Message> = input.messages().cloned().collect();
    if let Some(answers) = &input.answers {
        let restarted = answers.restart.iter().filter_map(Part::as_tool_request);
        // Only the result of a restarted call is missing.
        let approved = restarted.map(|call| Part::tool_response(ToolResponse::to(call, Value::Null)));
        messages.push(Message::tool(
            answers
                .respond
                .iter()
                .cloned()
                .chain(approved)
                .collect::<Vec<_>>(),
        ));
    }
    messages
}

fn is_answered(open: &WaitingCall, response: &ToolResponse) -> bool {
    open.part
        .as_tool_request()
        .is_some_and(|request| request.name == response.name && request.reference == response.reference)
}

/// Returns the client's answer to a call; `None` if the response is a result of this turn's own calls.
fn answer(
    part: &Part,
    response: &ToolResponse,
    open: Option<&WaitingCall>,
    id: impl Fn(&str) -> String,
) -> Option<Value> {
    let is_given = part.metadata_entry(metadata::INTERRUPT_RESPONSE).is_some();
    let output = response.output.as_ref();
    let denied = output.filter(|output| output["denied"] == Value::Bool(true));
    match open {
        // A restarted call was approved, whatever its result.
        Some(open) if open.is_approval() && (!is_given || denied.is_some()) => Some(json!({
            "id": id("mcpr"),
            "type": "mcp_approval_response",
            "approval_request_id": open.id,
            "approve": !is_given,
            "reason": denied.map(|denied| denied["reason"].clone()),
        })),
        None if !is_given => None,
        open => Some(json!({
            "id": id("fco"),
            "type": "function_call_output",
            "call_id": open.map(|open| &open.id).or(response.reference.as_ref()),
            "output": output.map(plain_text),
            "status": "completed",
        })),
    }
}

fn input_part(part: &Part) -> Option<Value> {
    if let Some(text) = part.as_text() {
        return Some(json!({ "type": "input_text", "text": text }));
    }
    let media = part.as_media()?;
    let is_image = media.mime_type().is_none_or(|kind| kind.starts_with("image/"));
    Some(if is_image {
        json!({ "type": "input_image", "image_url": media.url, "detail": "auto" })
    } else {
        json!({ "type": "input_file", "file_url": media.url })
    })
}
