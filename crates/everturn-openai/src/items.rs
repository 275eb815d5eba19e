//! The items of a turn: its texts, reasoning and calls, each with an id.
//!
//! Two pure functions produce the same items: [`items_of`] reads the messages that a turn has added, and
//! [`ItemStream`] reads the turn's stream, and at its end the parts that were not streamed. Every item is
//! therefore sent once, under its final id.

mod item_stream;

use std::collections::HashMap;

use everturn_ai::{Message, Part, Role, ToolRequest, ToolResponse, metadata};
use everturn_server::MessagePosition;
use serde_json::Value;

pub(crate) use self::item_stream::{ItemStep, ItemStream};
use crate::json_cut::JsonCut;

/// One item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) key: MessagePosition,
    pub(crate) kind: ItemKind,
}

impl Item {
    pub(crate) fn new(key: MessagePosition, kind: ItemKind) -> Self {
        Self { key, kind }
    }
}

/// The content of an item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ItemKind {
    /// Text of the model.
    Text(String),
    /// Reasoning of the model.
    Reasoning(String),
    /// A call that the client answers: of a tool of the client, or of a tool that only accepts a response.
    Question(ToolRequest),
    /// A call that requires approval.
    Approval(ToolRequest),
    /// A call of the agent's own tool, with its result.
    Done {
        request: ToolRequest,
        output: Option<Value>,
        is_error: bool,
    },
}

/// Information about a turn that its messages do not contain.
#[derive(Debug, Clone, Default)]
pub(crate) struct TurnInfo {
    /// The calls of the message before the turn.
    pub(crate) prior: Vec<Part>,
    /// The agent's tools that only accept a response.
    pub(crate) respond_only: Vec<String>,
    /// The names of the client's tools.
    pub(crate) of_client: Vec<String>,
    /// Whether the client requested JSON: texts are then reduced to their JSON value.
    pub(crate) is_json: bool,
}

impl TurnInfo {
    /// Returns the item of a waiting call.
    fn waiting(&self, part: &Part, request: &ToolRequest) -> ItemKind {
        let request = request.clone();
        if part.is_call_of_client() || self.respond_only.contains(&request.name) {
            ItemKind::Question(request)
        } else {
            ItemKind::Approval(request)
        }
    }
}

/// Returns the items of the messages that a turn added; `from` is the position of the first one.
pub(crate) fn items_of(from: usize, messages: &[Message], info: &TurnInfo) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    // Calls without a result yet, by name and reference.
    let mut open: HashMap<Call, (MessagePosition, ToolRequest)> = HashMap::new();
    let earlier: HashMap<Call, &ToolRequest> = info
        .prior
        .iter()
        .filter_map(Part::as_tool_request)
        .map(|request| (Call::of(request), request))
        .collect();
    for (offset, message) in messages.iter().enumerate() {
        let place = from + offset;
        match message.role() {
            Role::Model => add_model_message(place, message, info, &mut items, &mut open),
            Role::Tool => {
                for (number, part) in message.content().iter().enumerate() {
                    let Some(response) = part.as_tool_response() else {
                        continue;
                    };
                    let call = Call::answered(response);
                    let own = open.remove(&call);
                    let here = MessagePosition::new(place, number);
                    let (key, request) = match (own, earlier.get(&call)) {
                        (Some(own), _) => own,
                        // The client has its own answers, and the items of earlier turns.
                        (None, Some(request)) if is_of_this_turn(part) => (here, (*request).clone()),
                        _ => continue,
                    };
                    items.push(Item::new(
                        key,
                        done(request, response.output.clone(), is_error(part)),
                    ));
                }
            }
            _ => {}
        }
    }
    items
}

/// Adds the items of a model's message. Calls without a result are remembered, or are questions.
fn add_model_message(
    place: usize,
    message: &Message,
    info: &TurnInfo,
    items: &mut Vec<Item>,
    open: &mut HashMap<Call, (MessagePosition, ToolRequest)>,
) {
    let mut number = 0;
    let mut growing: Option<Growing> = None;
    for part in message.content() {
        let key = MessagePosition::new(place, number);
        if let Some(request) = part.as_tool_request() {
            growing = None;
            number += 1;
            if part.interrupt().is_some() {
                items.push(Item::new(key, info.waiting(part, request)));
            } else if let Some(output) = part.metadata_entry(metadata::PENDING_OUTPUT) {
                items.push(Item::new(key, done(request.clone(), Some(output.clone()), false)));
            } else if part.is_call_of_client() {
                items.push(Item::new(key, ItemKind::Question(request.clone())));
            } else {
                open.insert(Call::of(request), (key, request.clone()));
            }
            continue;
        }
        let Some((run, text)) = Run::of(part).filter(|(_, text)| !text.is_empty()) else {
            continue;
        };
        let mut growth = growing
            .take()
            .filter(|growing| growing.run == run)
            .unwrap_or_else(|| {
                number += 1;
                Growing::new(run, key, info)
            });
        let text = growth.shown(text);
        match growth.index {
            Some(index) => items[index].kind.append(text),
            None if text.is_empty() => {}
            None => {
                growth.index = Some(items.len());
                items.push(Item::new(growth.key, run.item(text.to_owned())));
            }
        }
        growing = Some(growth);
    }
}

/// An item that is streamed in pieces.
#[derive(Debug)]
struct Growing {
    run: Run,
    key: MessagePosition,
    /// Its index among the items; `None` while it is empty.
    index: Option<usize>,
    cut: Option<JsonCut>,
}

impl Growing {
    fn new(run: Run, key: MessagePosition, info: &TurnInfo) -> Self {
        Self {
            run,
            key,
            index: None,
            cut: (info.is_json && run == Run::Text).then(JsonCut::default),
        }
    }

    /// Returns the part of the next piece that is sent.
    fn shown<'a>(&mut self, piece: &'a str) -> &'a str {
        match &mut self.cut {
            Some(cut) => cut.next(piece),
            None => piece,
        }
    }
}

/// The kinds of items that are streamed in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Text,
    Reasoning,
}

impl Run {
    fn of(part: &Part) -> Option<(Self, &str)> {
        match (part.as_text(), part.as_reasoning()) {
            (Some(text), _) => Some((Self::Text, text)),
            (_, Some(text)) => Some((Self::Reasoning, text)),
            _ => None,
        }
    }

    fn item(self, text: String) -> ItemKind {
        match self {
            Self::Text => ItemKind::Text(text),
            Self::Reasoning => ItemKind::Reasoning(text),
        }
    }
}

impl ItemKind {
    fn append(&mut self, more: &str) {
        if let Self::Text(text) | Self::Reasoning(text) = self {
            text.push_str(more);
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Reasoning(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the same item without its text.
    fn emptied(&self) -> Self {
        match self {
            Self::Text(_) => Self::Text(String::new()),
            Self::Reasoning(_) => Self::Reasoning(String::new()),
            other => other.clone(),
        }
    }
}

fn done(request: ToolRequest, output: Option<Value>, is_error: bool) -> ItemKind {
    ItemKind::Done {
        request,
        output,
        is_error,
    }
}

fn is_error(part: &Part) -> bool {
    part.metadata_entry(metadata::IS_ERROR) == Some(&Value::Bool(true))
}

/// Returns whether this turn produced the result of an earlier turn's call, by a restarted tool.
fn is_of_this_turn(part: &Part) -> bool {
    part.metadata_entry(metadata::INTERRUPT_RESPONSE).is_none()
        && part.metadata_entry(metadata::SOURCE).is_none()
}

/// A call by its name and reference.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Call(String, String);

impl Call {
    fn of(request: &ToolRequest) -> Self {
        Self(
            request.name.clone(),
            request.reference.clone().unwrap_or_default(),
        )
    }

    fn answered(response: &ToolResponse) -> Self {
        Self(
            response.name.clone(),
            response.reference.clone().unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests;
