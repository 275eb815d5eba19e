//! The items of a turn: what the agent said and did, in pieces that have an id of their own.
//!
//! Two pure functions, which agree: [`items_of`] reads the messages that a turn has added, and [`Items`] follows the turn's
//! stream and tells at its end whatever was not streamed. So every item is told once, under the id it has later.

use std::collections::HashMap;

use everturn_agent::AgentStreamChunk;
use everturn_ai::{Message, Part, Role, ToolRequest, ToolResponse, metadata};
use serde_json::Value;

use crate::ids::ItemKey;

/// One item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) key: ItemKey,
    pub(crate) kind: ItemKind,
}

/// What an item is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ItemKind {
    /// Text of the model.
    Text(String),
    /// Reasoning of the model.
    Reasoning(String),
    /// A call that the client answers: of its own tool, or a question to a person.
    Question(ToolRequest),
    /// A call that asks before it acts.
    Approval(ToolRequest),
    /// A call of the agent's own tool, with its result.
    Done {
        request: ToolRequest,
        output: Option<Value>,
        is_error: bool,
    },
}

/// A step in telling items.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    /// The item of this index begins. Text and reasoning begin empty, calls are whole.
    Opened(usize),
    /// The text or reasoning of the item grew.
    Grew(usize, String),
    /// The item is complete.
    Closed(usize),
}

/// What must be known of a turn beside its messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setting {
    /// The calls of the message before the turn.
    pub(crate) prior: Vec<Part>,
    /// The agent's tools that only a response answers.
    pub(crate) respond_only: Vec<String>,
    /// The tools that the client brought.
    pub(crate) of_client: Vec<String>,
}

impl Setting {
    /// Returns what a call that waits is.
    fn waiting(&self, part: &Part, request: &ToolRequest) -> ItemKind {
        let request = request.clone();
        if part.is_call_of_client() || self.respond_only.contains(&request.name) {
            ItemKind::Question(request)
        } else {
            ItemKind::Approval(request)
        }
    }
}

/// Returns the items of the messages that a turn added, of which the first has the place `from`.
pub(crate) fn items_of(from: usize, messages: &[Message], setting: &Setting) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    // Calls without a result yet, by name and reference.
    let mut open: HashMap<Call, (ItemKey, ToolRequest)> = HashMap::new();
    let earlier: HashMap<Call, &ToolRequest> = setting
        .prior
        .iter()
        .filter_map(Part::as_tool_request)
        .map(|request| (Call::of(request), request))
        .collect();
    for (offset, message) in messages.iter().enumerate() {
        let place = from + offset;
        match message.role() {
            Role::Model => said(place, message, setting, &mut items, &mut open),
            Role::Tool => {
                for (number, part) in message.content().iter().enumerate() {
                    let Some(response) = part.as_tool_response() else {
                        continue;
                    };
                    let call = Call::answered(response);
                    let own = open.remove(&call);
                    let here = ItemKey {
                        message: place,
                        number,
                    };
                    let (key, request) = match (own, earlier.get(&call)) {
                        (Some(own), _) => own,
                        // The client knows what it answered itself, and what was told in the turn before.
                        (None, Some(request)) if is_of_this_turn(part) => (here, (*request).clone()),
                        _ => continue,
                    };
                    items.push(Item {
                        key,
                        kind: done(request, response.output.clone(), is_error(part)),
                    });
                }
            }
            _ => {}
        }
    }
    items
}

/// Adds the items of a model's message. Calls that have no result yet are remembered, or are questions.
fn said(
    place: usize,
    message: &Message,
    setting: &Setting,
    items: &mut Vec<Item>,
    open: &mut HashMap<Call, (ItemKey, ToolRequest)>,
) {
    let mut number = 0;
    let mut last: Option<Run> = None;
    for part in message.content() {
        let key = ItemKey {
            message: place,
            number,
        };
        if let Some(request) = part.as_tool_request() {
            last = None;
            number += 1;
            if part.interrupt().is_some() {
                items.push(Item {
                    key,
                    kind: setting.waiting(part, request),
                });
            } else if let Some(output) = part.metadata_entry(metadata::PENDING_OUTPUT) {
                items.push(Item {
                    key,
                    kind: done(request.clone(), Some(output.clone()), false),
                });
            } else if part.is_call_of_client() {
                items.push(Item {
                    key,
                    kind: ItemKind::Question(request.clone()),
                });
            } else {
                open.insert(Call::of(request), (key, request.clone()));
            }
            continue;
        }
        let Some((run, text)) = Run::of(part) else {
            continue;
        };
        if last == Some(run)
            && let Some(Item { kind, .. }) = items.last_mut()
        {
            kind.append(text);
            continue;
        }
        if text.is_empty() {
            continue;
        }
        last = Some(run);
        number += 1;
        items.push(Item {
            key,
            kind: run.item(text.to_owned()),
        });
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

    /// The same item with nothing said yet.
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

/// Returns whether the result of an earlier turn's call was made in this turn: by a tool that was restarted.
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

/// Follows the stream of one turn.
#[derive(Debug, Default)]
pub(crate) struct Items {
    told: Vec<Item>,
    /// The item that still grows.
    growing: Option<(usize, Run)>,
    /// How many items each message has so far, calls without a result included.
    counts: HashMap<usize, usize>,
    open: HashMap<Call, (ItemKey, ToolRequest)>,
    setting: Setting,
}

impl Items {
    /// Follows a turn.
    pub(crate) fn new(setting: Setting) -> Self {
        Self {
            setting,
            ..Self::default()
        }
    }

    /// Returns whether the client brought a tool of this name.
    pub(crate) fn is_of_client(&self, name: &str) -> bool {
        self.setting.of_client.iter().any(|tool| tool == name)
    }

    /// Returns the items that were told so far.
    pub(crate) fn told(&self) -> &[Item] {
        &self.told
    }

    /// Takes in a chunk of the stream.
    pub(crate) fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<Told> {
        let mut steps = Vec::new();
        let (Some(model), Some(place)) = (&chunk.model_chunk, chunk.position) else {
            return steps;
        };
        // Chunks that repeat what came before are told at the end, from the message itself.
        if model.aggregated {
            return steps;
        }
        match model.role.unwrap_or(Role::Model) {
            Role::Model => {
                for part in &model.content {
                    self.model_part(place, part, &mut steps);
                }
            }
            Role::Tool => {
                for part in &model.content {
                    self.result(part, &mut steps);
                }
            }
            _ => {}
        }
        steps
    }

    fn model_part(&mut self, place: usize, part: &Part, steps: &mut Vec<Told>) {
        if let Some(request) = part.as_tool_request() {
            if request.partial {
                return;
            }
            let key = self.next_key(place);
            self.close(steps);
            if self.is_of_client(&request.name) {
                let kind = ItemKind::Question(request.clone());
                self.tell_whole(Item { key, kind }, steps);
            } else {
                self.open.insert(Call::of(request), (key, request.clone()));
            }
            return;
        }
        let Some((run, text)) = Run::of(part).filter(|(_, text)| !text.is_empty()) else {
            return;
        };
        let index = match self.growing {
            Some((index, growing)) if growing == run && self.told[index].key.message == place => index,
            _ => {
                let key = self.next_key(place);
                self.close(steps);
                let kind = run.item(String::new());
                self.told.push(Item { key, kind });
                let index = self.told.len() - 1;
                self.growing = Some((index, run));
                steps.push(Told::Opened(index));
                index
            }
        };
        self.told[index].kind.append(text);
        steps.push(Told::Grew(index, text.to_owned()));
    }

    fn result(&mut self, part: &Part, steps: &mut Vec<Told>) {
        let is_partial = part.metadata_entry(metadata::PARTIAL).is_some();
        let Some(response) = part.as_tool_response().filter(|_| !is_partial) else {
            return;
        };
        let Some((key, request)) = self.open.remove(&Call::answered(response)) else {
            return;
        };
        self.close(steps);
        let kind = done(request, response.output.clone(), is_error(part));
        self.tell_whole(Item { key, kind }, steps);
    }

    fn next_key(&mut self, message: usize) -> ItemKey {
        let count = self.counts.entry(message).or_default();
        let number = *count;
        *count += 1;
        ItemKey { message, number }
    }

    fn close(&mut self, steps: &mut Vec<Told>) {
        if let Some((index, _)) = self.growing.take() {
            steps.push(Told::Closed(index));
        }
    }

    fn tell_whole(&mut self, item: Item, steps: &mut Vec<Told>) {
        self.told.push(item);
        let index = self.told.len() - 1;
        steps.extend([Told::Opened(index), Told::Closed(index)]);
    }

    /// Closes what is open, because the turn ended without messages.
    pub(crate) fn give_up(&mut self) -> Vec<Told> {
        let mut steps = Vec::new();
        self.close(&mut steps);
        steps
    }

    /// Takes in the messages that the turn added, and tells whatever of them was not streamed.
    pub(crate) fn end(&mut self, from: usize, messages: &[Message]) -> Vec<Told> {
        let mut steps = Vec::new();
        for item in items_of(from, messages, &self.setting) {
            let known = self.told.iter().position(|told| told.key == item.key);
            let Some(index) = known else {
                self.close(&mut steps);
                self.told.push(Item {
                    key: item.key,
                    kind: item.kind.emptied(),
                });
                let index = self.told.len() - 1;
                steps.push(Told::Opened(index));
                self.grow(index, &item, &mut steps);
                steps.push(Told::Closed(index));
                continue;
            };
            // Only the item that is still open can grow.
            if self.growing.is_some_and(|(growing, _)| growing == index) {
                self.grow(index, &item, &mut steps);
                self.close(&mut steps);
            }
        }
        self.close(&mut steps);
        steps
    }

    /// Tells the rest of a text that was streamed in part.
    fn grow(&mut self, index: usize, whole: &Item, steps: &mut Vec<Told>) {
        let (Some(whole), Some(told)) = (whole.kind.text(), self.told[index].kind.text()) else {
            return;
        };
        let Some(rest) = whole.strip_prefix(told).filter(|rest| !rest.is_empty()) else {
            return;
        };
        let rest = rest.to_owned();
        self.told[index].kind.append(&rest);
        steps.push(Told::Grew(index, rest));
    }
}

#[cfg(test)]
mod tests;
