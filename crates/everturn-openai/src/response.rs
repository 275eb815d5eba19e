//! The response object.

use std::borrow::Cow;

use everturn_agent::{AgentFinishReason, SessionId, UsageTotal};
use everturn_core::{RuntimeError, Status, hex};
use everturn_server::{MessagePosition, text_of_hex};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::items::{Item, ItemKind};

/// A response without its items.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) id: String,
    /// The turn name in the ids of items: the snapshot, or a name of this response alone.
    pub(crate) name: String,
    pub(crate) agent: String,
    pub(crate) created_at: i64,
    pub(crate) completed_at: Option<i64>,
    pub(crate) status: State,
    pub(crate) background: bool,
    pub(crate) is_stored: bool,
    pub(crate) session: Option<SessionId>,
    pub(crate) previous: Option<String>,
    /// The fields of the request that are returned unchanged.
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
            (Some(AgentFinishReason::Failed), None) => {
                Self::Failed(RuntimeError::new(Status::Internal, "the turn failed"))
            }
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

/// Returns the error of a failed turn. Clients do not retry turns with this code, unless a retry may succeed.
fn failure(error: &RuntimeError) -> Value {
    let (kind, code) = match error.status {
        Some(Status::Unavailable) => ("server_error", "server_error"),
        Some(Status::ResourceExhausted) => ("rate_limit_error", "rate_limit_exceeded"),
        _ => ("invalid_request_error", "invalid_turn"),
    };
    json!({ "type": kind, "code": code, "message": error.message, "param": null })
}

/// A response in the protocol's form. Fields without a value are null, because some clients require them.
#[derive(Debug, Serialize)]
pub(crate) struct ResponseObject<'a> {
    id: &'a str,
    object: &'static str,
    created_at: i64,
    completed_at: Option<i64>,
    status: &'static str,
    background: bool,
    model: &'a str,
    output: Vec<Value>,
    error: Option<Value>,
    incomplete_details: Option<Value>,
    instructions: Option<&'a Value>,
    metadata: Cow<'a, Value>,
    previous_response_id: Option<&'a str>,
    conversation: Option<Value>,
    store: bool,
    parallel_tool_calls: Cow<'a, Value>,
    temperature: Option<&'a Value>,
    top_p: Option<&'a Value>,
    tool_choice: Cow<'a, Value>,
    tools: Cow<'a, Value>,
    text: Cow<'a, Value>,
    truncation: Cow<'a, Value>,
    max_output_tokens: Option<&'a Value>,
    usage: Option<Value>,
}

impl ResponseObject<'_> {
    /// Returns the object as a value.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a response is plain data")
    }
}

impl Response {
    /// Returns the object with these items.
    pub(crate) fn object(&self, items: &[Item]) -> ResponseObject<'_> {
        let (error, incomplete_details) = match &self.status {
            State::Failed(error) => (Some(failure(error)), None),
            State::Incomplete(reason) => (None, Some(json!({ "reason": reason }))),
            _ => (None, None),
        };
        let echoed = |name: &str| self.echoed.get(name);
        let echoed_or =
            |name: &str, otherwise: Value| echoed(name).map_or(Cow::Owned(otherwise), Cow::Borrowed);
        ResponseObject {
            id: &self.id,
            object: "response",
            created_at: self.created_at,
            completed_at: self.completed_at,
            status: self.status.name(),
            background: self.background,
            model: &self.agent,
            output: items.iter().map(|item| self.item(item, "completed")).collect(),
            error,
            incomplete_details,
            instructions: echoed("instructions"),
            metadata: echoed_or("metadata", json!({})),
            previous_response_id: self.previous.as_deref(),
            conversation: self.session.as_ref().map(|id| json!({ "id": id })),
            store: self.is_stored,
            parallel_tool_calls: echoed_or("parallel_tool_calls", json!(true)),
            temperature: echoed("temperature"),
            top_p: echoed("top_p"),
            tool_choice: echoed_or("tool_choice", json!("auto")),
            tools: echoed_or("tools", json!([])),
            text: echoed_or("text", json!({ "format": { "type": "text" } })),
            truncation: echoed_or("truncation", json!("disabled")),
            max_output_tokens: echoed("max_output_tokens"),
            usage: self.usage.as_ref().filter(|total| has_counts(total)).map(usage),
        }
    }

    /// Returns an item in the protocol's form.
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

/// Returns whether the model reported token counts.
fn has_counts(total: &UsageTotal) -> bool {
    total.input_tokens + total.output_tokens > 0
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

/// Returns the part of a message text.
pub(crate) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// Returns the part of a reasoning text.
pub(crate) fn reasoning_part(text: &str) -> Value {
    json!({ "type": "reasoning_text", "text": text })
}

/// Returns a call's input as JSON text.
pub(crate) fn arguments(input: Option<&Value>) -> String {
    input.map_or_else(|| "{}".to_owned(), Value::to_string)
}

/// Returns a text as it is, and any other value as JSON text.
pub(crate) fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the id of a response: `resp_`, the name of the turn, and the agent.
pub(crate) fn response_id(turn: &str, agent: &str) -> String {
    format!("resp_{turn}_{}", hex(agent.as_bytes()))
}

/// Returns the turn and the agent of a response; `None` for an id that no response has.
pub(crate) fn parse_response_id(id: &str) -> Option<(&str, String)> {
    let (turn, agent) = id.strip_prefix("resp_")?.rsplit_once('_')?;
    let agent = text_of_hex(agent)?;
    (!turn.is_empty() && !agent.is_empty()).then_some((turn, agent))
}

/// Returns the turn and the position that the id of an item names; `None` for an id that no item has.
pub(crate) fn parse_item_id(id: &str) -> Option<(&str, MessagePosition)> {
    let (_, turn, position) = MessagePosition::parse(id)?;
    Some((turn, position))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_its_turn_and_agent() {
        let id = response_id("0199-ab_c", "küche/chef");

        assert_eq!(
            parse_response_id(&id),
            Some(("0199-ab_c", "küche/chef".to_owned()))
        );
        for other in ["resp_", "resp_x", "resp__61", "msg_a_61", "resp_a_6z", "resp_a_ü"] {
            assert_eq!(parse_response_id(other), None, "{other}");
        }
    }

    #[test]
    fn items_name_their_turn_and_position() {
        let position = MessagePosition::new;

        assert_eq!(position(3, 1).id("msg", "0199"), "msg_0199_3.1");
        assert_eq!(parse_item_id("msg_0199_3.1"), Some(("0199", position(3, 1))));
        assert_eq!(parse_item_id("call_01_99_3"), Some(("01_99", position(3, 0))));
        for other in ["call_abc", "item", "msg__1", "msg_a_1.x"] {
            assert_eq!(parse_item_id(other), None, "{other}");
        }
    }
}
