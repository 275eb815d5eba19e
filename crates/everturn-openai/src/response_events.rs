//! The events of a response: pure functions of the steps of its items.

use everturn_agent::AgentStreamChunk;
use serde::Serialize;
use serde_json::{Value, json};

use crate::event::Event;
use crate::items::{ItemKind, ItemStep, ItemStream};
use crate::response::{Response, ResponseObject, State, reasoning_part, text_part};

/// Creates and numbers the events of one response.
#[derive(Debug)]
pub(crate) struct ResponseEvents {
    pub(crate) response: Response,
    items: ItemStream,
    next: u64,
}

/// The fields of an event about the whole response.
#[derive(Serialize)]
struct About<'a> {
    response: ResponseObject<'a>,
}

/// The fields of an event with a text delta.
#[derive(Serialize)]
struct MoreText<'a> {
    item_id: &'a str,
    output_index: usize,
    content_index: usize,
    delta: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[(); 0]>,
}

impl ResponseEvents {
    pub(crate) fn new(response: Response, items: ItemStream) -> Self {
        Self {
            response,
            items,
            next: 0,
        }
    }

    pub(crate) fn items(&mut self) -> &mut ItemStream {
        &mut self.items
    }

    /// Returns the events at the start of the response.
    pub(crate) fn start(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.response.background {
            self.response.status = State::Queued;
            events.push(self.about_response("response.created"));
            events.push(self.about_response("response.queued"));
            self.response.status = State::InProgress;
        } else {
            events.push(self.about_response("response.created"));
        }
        events.push(self.about_response("response.in_progress"));
        events
    }

    /// Returns the events of a chunk.
    pub(crate) fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<Event> {
        let steps = self.items.chunk(chunk);
        self.steps(&steps)
    }

    /// Returns the events of item steps.
    pub(crate) fn steps(&mut self, steps: &[ItemStep]) -> Vec<Event> {
        steps.iter().flat_map(|step| self.step(step)).collect()
    }

    /// Returns the last event. The response has its final state.
    pub(crate) fn end(&mut self) -> Event {
        match &self.response.status {
            State::Cancelled => Event::error(self.number(), "cancelled", "The response was cancelled."),
            State::Failed(_) => self.about_response("response.failed"),
            State::Incomplete(_) => self.about_response("response.incomplete"),
            _ => self.about_response("response.completed"),
        }
    }

    /// Returns the current state of the whole object.
    pub(crate) fn object(&self) -> ResponseObject<'_> {
        self.response.object(self.items.items())
    }

    fn about_response(&mut self, name: &'static str) -> Event {
        let number = self.number();
        let response = self.object();
        Event::new(name, number, About { response })
    }

    fn event(&mut self, name: &'static str, fields: impl Serialize) -> Event {
        Event::new(name, self.number(), fields)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn step(&mut self, step: &ItemStep) -> Vec<Event> {
        match step {
            ItemStep::Started(index) => self.opened(*index),
            ItemStep::Delta(index, delta) => {
                let Some(item) = self.items.items().get(*index) else {
                    return Vec::new();
                };
                let (kind, name, logprobs) = match item.kind {
                    ItemKind::Reasoning(_) => ("rs", "response.reasoning_text.delta", None),
                    _ => ("msg", "response.output_text.delta", Some([])),
                };
                let more = MoreText {
                    item_id: &item.key.id(kind, &self.response.name),
                    output_index: *index,
                    content_index: 0,
                    delta,
                    logprobs,
                };
                vec![self.event(name, more)]
            }
            ItemStep::Finished(index) => self.closed(*index),
        }
    }

    fn opened(&mut self, index: usize) -> Vec<Event> {
        let Some(item) = self.items.items().get(index).cloned() else {
            return Vec::new();
        };
        let mut shown = self.response.item(&item, "in_progress");
        // Content is sent in separate events, also if several chunks are encoded together.
        match &item.kind {
            ItemKind::Text(_) | ItemKind::Reasoning(_) => shown["content"] = json!([]),
            ItemKind::Question(_) => shown["arguments"] = json!(""),
            ItemKind::Done { .. } => {
                shown["output"] = Value::Null;
                shown["error"] = Value::Null;
                shown["status"] = json!("in_progress");
            }
            ItemKind::Approval(_) => {}
        }
        let id = shown["id"].clone();
        let mut events = vec![self.event(
            "response.output_item.added",
            json!({ "output_index": index, "item": shown }),
        )];
        let part = match &item.kind {
            ItemKind::Text(_) => Some(text_part("")),
            ItemKind::Reasoning(_) => Some(reasoning_part("")),
            _ => None,
        };
        if let Some(part) = part {
            events.push(self.event(
                "response.content_part.added",
                json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part }),
            ));
        }
        events
    }

    fn closed(&mut self, index: usize) -> Vec<Event> {
        let Some(item) = self.items.items().get(index).cloned() else {
            return Vec::new();
        };
        let shown = self.response.item(&item, "completed");
        let (id, arguments) = (shown["id"].clone(), shown["arguments"].clone());
        let about = |fields: Value| {
            let mut all = json!({ "item_id": id, "output_index": index });
            if let (Some(all), Value::Object(fields)) = (all.as_object_mut(), fields) {
                all.extend(fields);
            }
            all
        };
        let mut events = Vec::new();
        match &item.kind {
            ItemKind::Text(text) => {
                let fields = json!({ "content_index": 0, "text": text, "logprobs": [] });
                events.push(self.event("response.output_text.done", about(fields)));
                let fields = json!({ "content_index": 0, "part": text_part(text) });
                events.push(self.event("response.content_part.done", about(fields)));
            }
            ItemKind::Reasoning(text) => {
                let fields = json!({ "content_index": 0, "text": text });
                events.push(self.event("response.reasoning_text.done", about(fields)));
                let fields = json!({ "content_index": 0, "part": reasoning_part(text) });
                events.push(self.event("response.content_part.done", about(fields)));
            }
            ItemKind::Question(request) => {
                let delta = json!({ "delta": arguments });
                events.push(self.event("response.function_call_arguments.delta", about(delta)));
                let done = json!({ "arguments": arguments, "name": request.name });
                events.push(self.event("response.function_call_arguments.done", about(done)));
            }
            ItemKind::Done { is_error, .. } => {
                events.push(self.event("response.mcp_call.in_progress", about(json!({}))));
                let done = json!({ "arguments": arguments });
                events.push(self.event("response.mcp_call_arguments.done", about(done)));
                let name = if *is_error {
                    "response.mcp_call.failed"
                } else {
                    "response.mcp_call.completed"
                };
                events.push(self.event(name, about(json!({}))));
            }
            ItemKind::Approval(_) => {}
        }
        events.push(self.event(
            "response.output_item.done",
            json!({ "output_index": index, "item": shown }),
        ));
        events
    }
}

#[cfg(test)]
mod tests;
