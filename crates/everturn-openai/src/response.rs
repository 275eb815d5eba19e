//! The response object and the events of its stream.

use everturn_agent::{AgentFinishReason, AgentStreamChunk, SessionId, UsageTotal};
use everturn_core::stream_log::JsonText;
use everturn_core::{RuntimeError, Status};
use serde_json::{Map, Value, json};

use crate::items::{Item, ItemKind, Items, Told};

/// Everything about a response but its items.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) id: String,
    /// The name under which items are named: the snapshot, or a name of this response alone.
    pub(crate) name: String,
    pub(crate) agent: String,
    pub(crate) created_at: i64,
    pub(crate) completed_at: Option<i64>,
    pub(crate) status: State,
    pub(crate) background: bool,
    pub(crate) is_stored: bool,
    pub(crate) session: Option<SessionId>,
    pub(crate) previous: Option<String>,
    /// The request's fields that are returned as they were sent.
    pub(crate) echoed: Map<String, Value>,
    pub(crate) usage: Option<UsageTotal>,
}

/// The state of a response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum State {
    Queued,
    InProgress,
    Completed,
    /// Ended early, for this reason.
    Incomplete(&'static str),
    Failed(RuntimeError),
    Cancelled,
}

impl State {
    /// Returns the state of a turn that ended.
    pub(crate) fn ended(reason: Option<AgentFinishReason>, error: Option<RuntimeError>) -> Self {
        match (reason, error) {
            (_, Some(error)) => Self::Failed(error),
            (Some(AgentFinishReason::Length), _) => Self::Incomplete("max_output_tokens"),
            (Some(AgentFinishReason::Blocked), _) => Self::Incomplete("content_filter"),
            (Some(AgentFinishReason::Aborted), _) => Self::Cancelled,
            (Some(AgentFinishReason::Failed), None) => Self::Failed(RuntimeError {
                status: Some(Status::Internal),
                message: "the turn failed".into(),
                details: None,
            }),
            _ => Self::Completed,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Returns the error of a failed turn. Its code keeps clients from running the turn again by themselves, unless that is
/// worth it.
fn failure(error: &RuntimeError) -> Value {
    let (kind, code) = match error.status {
        Some(Status::Unavailable) => ("server_error", "server_error"),
        Some(Status::ResourceExhausted) => ("rate_limit_error", "rate_limit_exceeded"),
        _ => ("invalid_request_error", "invalid_turn"),
    };
    json!({ "type": kind, "code": code, "message": error.message, "param": null })
}

impl Response {
    /// Returns the object with these items.
    pub(crate) fn object(&self, items: &[Item]) -> Value {
        let output: Vec<Value> = items.iter().map(|item| self.item(item, "completed")).collect();
        let (error, incomplete) = match &self.status {
            State::Failed(error) => (failure(error), Value::Null),
            State::Incomplete(reason) => (Value::Null, json!({ "reason": reason })),
            _ => (Value::Null, Value::Null),
        };
        let echoed = |name: &str, otherwise: Value| self.echoed.get(name).cloned().unwrap_or(otherwise);
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": self.completed_at,
            "status": self.status.name(),
            "background": self.background,
            "model": self.agent,
            "output": output,
            "error": error,
            "incomplete_details": incomplete,
            "instructions": echoed("instructions", Value::Null),
            "metadata": echoed("metadata", json!({})),
            "previous_response_id": self.previous,
            "conversation": self.session.as_ref().map(|id| json!({ "id": id })),
            "store": self.is_stored,
            "parallel_tool_calls": echoed("parallel_tool_calls", json!(true)),
            "temperature": echoed("temperature", Value::Null),
            "top_p": echoed("top_p", Value::Null),
            "tool_choice": echoed("tool_choice", json!("auto")),
            "tools": echoed("tools", json!([])),
            "text": echoed("text", json!({ "format": { "type": "text" } })),
            "truncation": echoed("truncation", json!("disabled")),
            "max_output_tokens": echoed("max_output_tokens", Value::Null),
            "usage": self.usage.as_ref().map(usage),
        })
    }

    /// Returns an item as clients see it.
    pub(crate) fn item(&self, item: &Item, status: &str) -> Value {
        let id = |kind: &str| item.key.id(kind, &self.name);
        match &item.kind {
            ItemKind::Text(text) => json!({
                "id": id("msg"),
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": if text.is_empty() { json!([]) } else { json!([text_part(text)]) },
            }),
            ItemKind::Reasoning(text) => json!({
                "id": id("rs"),
                "type": "reasoning",
                "status": status,
                "summary": [],
                "content": if text.is_empty() { json!([]) } else { json!([reasoning_part(text)]) },
            }),
            ItemKind::Question(request) => json!({
                "id": id("fc"),
                "type": "function_call",
                "call_id": id("call"),
                "name": request.name,
                "arguments": arguments(request.input.as_ref()),
                "status": status,
            }),
            ItemKind::Approval(request) => json!({
                "id": id("call"),
                "type": "mcp_approval_request",
                "server_label": self.agent,
                "name": request.name,
                "arguments": arguments(request.input.as_ref()),
            }),
            ItemKind::Done {
                request,
                output,
                is_error,
            } => {
                let output = output.as_ref().map(plain_text);
                let (output, error) = if *is_error { (None, output) } else { (output, None) };
                json!({
                    "id": id("mcp"),
                    "type": "mcp_call",
                    "server_label": self.agent,
                    "name": request.name,
                    "arguments": arguments(request.input.as_ref()),
                    "output": output,
                    "error": error,
                    "status": if *is_error { "failed" } else { status },
                })
            }
        }
    }
}

fn usage(total: &UsageTotal) -> Value {
    json!({
        "input_tokens": total.input_tokens,
        "input_tokens_details": { "cached_tokens": total.cached_content_tokens, "cache_write_tokens": 0 },
        "output_tokens": total.output_tokens,
        "output_tokens_details": { "reasoning_tokens": total.thoughts_tokens },
        "total_tokens": total.input_tokens + total.output_tokens,
    })
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn reasoning_part(text: &str) -> Value {
    json!({ "type": "reasoning_text", "text": text })
}

/// Returns a call's input as the text in which models write arguments.
pub(crate) fn arguments(input: Option<&Value>) -> String {
    input.map_or_else(|| "{}".to_owned(), Value::to_string)
}

/// Returns a text as it is, and any other value as JSON text.
pub(crate) fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Numbers and words the events of one response.
#[derive(Debug)]
pub(crate) struct Narrator {
    pub(crate) response: Response,
    items: Items,
    next: u64,
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) number: u64,
    /// The data, with the event's type and number.
    pub(crate) data: JsonText,
}

impl Event {
    /// Returns the event of a stream that cannot go on, in both forms in which clients look for an error.
    pub(crate) fn error(number: u64, code: &str, message: &str) -> Self {
        let error =
            json!({ "type": "invalid_request_error", "code": code, "message": message, "param": null });
        let data = json!({
            "type": "error", "sequence_number": number,
            "code": code, "message": message, "param": null, "error": error,
        });
        Self::new("error", number, &data)
    }

    fn new(name: &str, number: u64, data: &Value) -> Self {
        Self {
            name: name.to_owned(),
            number,
            data: JsonText::of(data).expect("a JSON value has a text"),
        }
    }
}

impl Narrator {
    pub(crate) fn new(response: Response, items: Items) -> Self {
        Self {
            response,
            items,
            next: 0,
        }
    }

    pub(crate) fn items(&mut self) -> &mut Items {
        &mut self.items
    }

    /// Returns the events with which the response begins.
    pub(crate) fn begin(&mut self) -> Vec<Event> {
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

    /// Returns the events of steps in telling items.
    pub(crate) fn steps(&mut self, steps: &[Told]) -> Vec<Event> {
        steps.iter().flat_map(|step| self.step(step)).collect()
    }

    /// Returns the last event. The response has its final state.
    pub(crate) fn end(&mut self) -> Event {
        match &self.response.status {
            State::Cancelled => {
                self.next += 1;
                Event::error(self.next - 1, "cancelled", "The response was cancelled.")
            }
            State::Failed(_) => self.about_response("response.failed"),
            State::Incomplete(_) => self.about_response("response.incomplete"),
            _ => self.about_response("response.completed"),
        }
    }

    /// Returns the whole object as it is now.
    pub(crate) fn object(&self) -> Value {
        self.response.object(self.items.told())
    }

    fn about_response(&mut self, name: &str) -> Event {
        let response = self.object();
        self.event(name, json!({ "response": response }))
    }

    fn event(&mut self, name: &str, fields: Value) -> Event {
        let mut data = json!({ "type": name, "sequence_number": self.next });
        if let (Some(data), Value::Object(fields)) = (data.as_object_mut(), fields) {
            data.extend(fields);
        }
        let number = self.next;
        self.next += 1;
        Event::new(name, number, &data)
    }

    fn step(&mut self, step: &Told) -> Vec<Event> {
        match step {
            Told::Opened(index) => self.opened(*index),
            Told::Grew(index, delta) => {
                let Some(item) = self.items.told().get(*index) else {
                    return Vec::new();
                };
                let (id, name) = match item.kind {
                    ItemKind::Reasoning(_) => ("rs", "response.reasoning_text.delta"),
                    _ => ("msg", "response.output_text.delta"),
                };
                let mut fields = json!({
                    "item_id": item.key.id(id, &self.response.name),
                    "output_index": index,
                    "content_index": 0,
                    "delta": delta,
                });
                if id == "msg" {
                    fields["logprobs"] = json!([]);
                }
                vec![self.event(name, fields)]
            }
            Told::Closed(index) => self.closed(*index),
        }
    }

    fn opened(&mut self, index: usize) -> Vec<Event> {
        let Some(item) = self.items.told().get(index).cloned() else {
            return Vec::new();
        };
        let mut shown = self.response.item(&item, "in_progress");
        // Content comes in events of its own, also where the steps of several chunks are told together.
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
        let Some(item) = self.items.told().get(index).cloned() else {
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
