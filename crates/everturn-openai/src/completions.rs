//! `POST /chat/completions`: one turn on the conversation that the client sends.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode};
use everturn_agent::{AgentFinishReason, AgentOutput, AgentStreamChunk, SessionId, UsageTotal};
use everturn_core::Context;
use everturn_server::{EncodedTurn, EventEncoder, ServedAgent, TurnPlan, exposure_of, json_response};
use futures::StreamExt;
use serde_json::{Map, Value, json};

use crate::chat_history::plan_chat;
use crate::client_transcript::{field, flag, messages, text, tools};
use crate::event::byte_stream;
use crate::fault::Fault;
use crate::format::Format;
use crate::items::{ItemKind, ItemStep, ItemStream};
use crate::plan::{info_of, plan_stateless, without_instructions};
use crate::response::arguments;
use crate::start_turn::start_turn;

/// The headers by which front ends name the conversation.
const CONVERSATION: [&str; 2] = ["x-conversation-id", "x-openwebui-chat-id"];

/// Handles a request.
pub(crate) async fn complete(
    agent: &ServedAgent,
    body: &Map<String, Value>,
    headers: &HeaderMap,
    context: Context,
) -> Result<Response<Body>, Fault> {
    check(body)?;
    let format = Format::of_completion(body, agent)?;
    let streams = flag(body, "stream")?.unwrap_or(false);
    let includes_usage = field(body, "stream_options")
        .and_then(|options| options.get("include_usage"))
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let tools = tools(body, true, agent)?;
    let transcript = messages(field(body, "messages").ok_or_else(|| Fault::missing("messages"))?)?;
    let session = conversation(body, headers)?.filter(|_| agent.has_store());
    let mut plan = if let Some(session) = session {
        plan_chat(agent, transcript, session, tools, &context).await?
    } else {
        let (transcript, instructions) = without_instructions(transcript, agent);
        plan_stateless(transcript, instructions, tools).map_err(Fault::in_messages)?
    };
    plan.input.output_schema = format.map(|format| Arc::new(format.schema));
    let turn = start_turn(agent, &plan, streams, &context).await?;
    let encoder = CompletionEncoder {
        streams,
        includes_usage,
        ..CompletionEncoder::new(agent, &plan, turn.name(), context)
    };
    let turn = EncodedTurn::new(turn, encoder);
    if streams {
        return Ok(byte_stream(turn.into_stream().map(|events| events.concat())));
    }
    turn.run_to_end().await.whole()
}

/// Rejects unsupported parameters.
fn check(body: &Map<String, Value>) -> Result<(), Fault> {
    let unsupported = |name: &str, why: &str| Err(Fault::invalid("unsupported_parameter", name, why));
    if field(body, "n").is_some_and(|n| *n != json!(1)) {
        return unsupported("n", "An agent gives one answer: 'n' must be 1.");
    }
    if field(body, "functions").is_some() {
        return unsupported("functions", "Use 'tools'.");
    }
    let modalities = field(body, "modalities").and_then(Value::as_array);
    let is_audio = modalities.is_some_and(|kinds| kinds.iter().any(|kind| kind == "audio"));
    if is_audio || field(body, "audio").is_some() {
        return unsupported("audio", "An agent answers with text.");
    }
    Ok(())
}

/// Returns the session that the request names: by a header of the front end, or in its metadata.
fn conversation(body: &Map<String, Value>, headers: &HeaderMap) -> Result<Option<SessionId>, Fault> {
    let named = CONVERSATION
        .iter()
        .find_map(|name| headers.get(*name)?.to_str().ok().filter(|id| !id.is_empty()));
    let metadata = field(body, "metadata").and_then(Value::as_object);
    let in_metadata = match metadata {
        Some(metadata) => text(metadata, "conversation_id")?,
        None => None,
    };
    Ok(named.or(in_metadata).map(SessionId::from))
}

/// Encodes a turn as a completion.
struct CompletionEncoder {
    id: String,
    agent: String,
    created: i64,
    /// The turn name in the ids of calls.
    name: String,
    items: ItemStream,
    is_stored: bool,
    /// Whether the client receives the chunks.
    streams: bool,
    includes_usage: bool,
    text: String,
    /// The item that the latest text belongs to.
    last_text: Option<usize>,
    context: Context,
    /// The end of the turn, once it has ended.
    end: Option<Result<End, Fault>>,
}

/// The end of a turn.
struct End {
    reason: &'static str,
    calls: Vec<Value>,
    usage: Option<UsageTotal>,
}

impl CompletionEncoder {
    fn new(agent: &ServedAgent, plan: &TurnPlan, name: &str, context: Context) -> Self {
        let name = name.to_owned();
        Self {
            id: format!("chatcmpl-{name}"),
            agent: agent.name().to_owned(),
            created: jiff::Timestamp::now().as_second(),
            name,
            items: ItemStream::new(info_of(plan, agent)),
            is_stored: plan.is_stored,
            streams: false,
            includes_usage: false,
            text: String::new(),
            last_text: None,
            context,
            end: None,
        }
    }

    /// Adds a chunk and returns its text.
    fn added_text(&mut self, chunk: &AgentStreamChunk) -> String {
        let mut new = String::new();
        for step in self.items.chunk(chunk) {
            let ItemStep::Delta(index, delta) = step else {
                continue;
            };
            let is_text = matches!(self.items.items()[index].kind, ItemKind::Text(_));
            if !is_text {
                continue;
            }
            if self.last_text.is_some_and(|last| last != index) {
                new.push_str("\n\n");
            }
            self.last_text = Some(index);
            new.push_str(&delta);
        }
        self.text.push_str(&new);
        new
    }

    /// Returns the end of a turn that did not fail.
    fn end_of(&self, reason: Option<AgentFinishReason>, usage: Option<UsageTotal>) -> Result<End, Fault> {
        let mut asks_user = false;
        let mut calls = Vec::new();
        for item in self.items.items() {
            let (ItemKind::Question(request) | ItemKind::Approval(request)) = &item.kind else {
                continue;
            };
            asks_user |= !self.items.is_of_client(&request.name);
            calls.push(json!({
                "index": calls.len(),
                "id": item.key.id("call", &self.name),
                "type": "function",
                "function": { "name": request.name, "arguments": arguments(request.input.as_ref()) },
            }));
        }
        if asks_user && !self.is_stored {
            return Err(Fault::invalid(
                "conversation_required",
                "messages",
                "The agent asks the user, which requires a stored conversation: name one in the header X-Conversation-Id.",
            ));
        }
        Ok(End {
            reason: match reason {
                _ if !calls.is_empty() => "tool_calls",
                Some(AgentFinishReason::Length) => "length",
                Some(AgentFinishReason::Blocked) => "content_filter",
                _ => "stop",
            },
            calls,
            usage,
        })
    }

    fn end_with(&self, outcome: everturn_core::Result<AgentOutput>) -> Result<End, Fault> {
        let output =
            outcome.map_err(|error| Fault::failed_turn(&error.to_wire(exposure_of(&self.context))))?;
        if let Some(error) = &output.error {
            return Err(Fault::failed_turn(error));
        }
        self.end_of(output.finish_reason, output.usage)
    }

    fn wire(&self, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.agent,
            "choices": choices,
        })
    }

    fn delta(&self, delta: &Value, reason: Option<&str>) -> Vec<u8> {
        line(&self.wire(&json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }])))
    }

    /// Returns the last lines of the stream.
    fn last_lines(&self, end: &Result<End, Fault>) -> Vec<u8> {
        let mut lines = Vec::new();
        match end {
            Ok(end) => {
                if !end.calls.is_empty() {
                    lines.extend(self.delta(&json!({ "tool_calls": end.calls }), None));
                }
                lines.extend(self.delta(&json!({}), Some(end.reason)));
                if self.includes_usage {
                    let mut last = self.wire(&json!([]));
                    last["usage"] = usage(end.usage.as_ref());
                    lines.extend(line(&last));
                }
                lines.extend(b"data: [DONE]\n\n");
            }
            Err(fault) => lines.extend(line(&json!({ "error": fault.object() }))),
        }
        lines
    }

    /// Returns the response to a request that is not streamed. The turn has ended.
    fn whole(mut self) -> Result<Response<Body>, Fault> {
        let end = self.end.take().unwrap_or_else(|| self.end_of(None, None))?;
        let text = if self.text.is_empty() && !end.calls.is_empty() {
            Value::Null
        } else {
            json!(self.text)
        };
        let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
        if !end.calls.is_empty() {
            let calls = end.calls.iter().cloned().map(|mut call| {
                // Only chunks number their calls.
                if let Some(call) = call.as_object_mut() {
                    call.shift_remove("index");
                }
                call
            });
            message["tool_calls"] = calls.collect();
        }
        let mut answer = self.wire(&json!([{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": end.reason,
        }]));
        answer["object"] = json!("chat.completion");
        answer["usage"] = usage(end.usage.as_ref());
        Ok(json_response(StatusCode::OK, &answer))
    }
}

impl EventEncoder for CompletionEncoder {
    type Event = Vec<u8>;

    fn start(&mut self) -> Vec<Vec<u8>> {
        vec![self.delta(&json!({ "role": "assistant", "content": "" }), None)]
    }

    fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<Vec<u8>> {
        let text = self.added_text(chunk);
        if text.is_empty() || !self.streams {
            return Vec::new();
        }
        vec![self.delta(&json!({ "content": text }), None)]
    }

    async fn end(&mut self, outcome: everturn_core::Result<AgentOutput>) -> Vec<Vec<u8>> {
        let end = self.end_with(outcome);
        let lines = if self.streams {
            self.last_lines(&end)
        } else {
            Vec::new()
        };
        self.end = Some(end);
        vec![lines]
    }
}

fn usage(total: Option<&UsageTotal>) -> Value {
    let total = total.copied().unwrap_or_default();
    json!({
        "prompt_tokens": total.input_tokens,
        "completion_tokens": total.output_tokens,
        "total_tokens": total.input_tokens + total.output_tokens,
        "prompt_tokens_details": { "cached_tokens": total.cached_content_tokens },
        "completion_tokens_details": { "reasoning_tokens": total.thoughts_tokens },
    })
}

fn line(data: &Value) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}
