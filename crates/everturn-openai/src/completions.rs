//! `POST /chat/completions`: one turn, told by the client.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode};
use everturn_agent::{AgentFinishReason, AgentStreamChunk, SessionId, UsageTotal};
use everturn_core::Context;
use everturn_server::{ServedTurn, exposure_of, json_response};
use futures::stream;
use serde_json::{Map, Value, json};

use crate::agents::Agent;
use crate::event_stream::event_stream;
use crate::fault::Fault;
use crate::format::Format;
use crate::items::{ItemKind, Items, Told};
use crate::plan::{Plan, hearsay, without_instructions};
use crate::record::plan_chat;
use crate::response::arguments;
use crate::said::{field, flag, messages, text, tools};
use crate::turn::start;

/// The headers by which front ends name the conversation.
const CONVERSATION: [&str; 2] = ["x-conversation-id", "x-openwebui-chat-id"];

/// Answers a request.
pub(crate) async fn complete(
    agent: &Agent,
    body: &Map<String, Value>,
    headers: &HeaderMap,
    context: Context,
) -> Result<Response<Body>, Fault> {
    check(body)?;
    let format = Format::of_completion(body, agent)?;
    let streams = flag(body, "stream")?.unwrap_or(false);
    let tells_usage = field(body, "stream_options")
        .and_then(|options| options.get("include_usage"))
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let tools = tools(body, true, agent)?;
    let said = messages(field(body, "messages").ok_or_else(|| Fault::missing("messages"))?)?;
    let session = conversation(body, headers)?.filter(|_| agent.has_store());
    let mut plan = if let Some(session) = session {
        plan_chat(agent, said, session, tools, &context).await?
    } else {
        let (said, instructions) = without_instructions(said, agent);
        hearsay(said, instructions, tools).map_err(Fault::in_messages)?
    };
    plan.input.output_schema = format.map(|format| Arc::new(format.schema));
    let turn = start(agent, &plan, streams, &context).await?;
    let told = Completion::new(agent, &plan, &turn, tells_usage);
    if streams {
        return Ok(streamed(turn, told, context));
    }
    whole(turn, told, &context).await
}

/// Refuses what this surface cannot do.
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
    let told = match metadata {
        Some(metadata) => text(metadata, "conversation_id")?,
        None => None,
    };
    Ok(named.or(told).map(SessionId::from))
}

/// What a completion says of itself in every chunk.
struct Completion {
    id: String,
    agent: String,
    created: i64,
    /// The name under which calls are named.
    name: String,
    items: Items,
    is_kept: bool,
    tells_usage: bool,
    text: String,
    /// The item whose text was told last.
    last_text: Option<usize>,
}

/// The end of a turn.
struct End {
    reason: &'static str,
    calls: Vec<Value>,
    usage: Option<UsageTotal>,
}

impl Completion {
    fn new(agent: &Agent, plan: &Plan, turn: &ServedTurn, tells_usage: bool) -> Self {
        let name = turn.name().to_owned();
        Self {
            id: format!("chatcmpl-{name}"),
            agent: agent.name().to_owned(),
            created: jiff::Timestamp::now().as_second(),
            name,
            items: Items::new(plan.setting(agent)),
            is_kept: plan.is_kept,
            tells_usage,
            text: String::new(),
            last_text: None,
        }
    }

    /// Takes in a chunk and returns the text that is new.
    fn chunk(&mut self, chunk: &AgentStreamChunk) -> String {
        let mut new = String::new();
        for step in self.items.chunk(chunk) {
            let Told::Grew(index, delta) = step else { continue };
            let is_text = matches!(self.items.told()[index].kind, ItemKind::Text(_));
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

    /// Returns the end of the turn.
    fn end(&self, reason: Option<AgentFinishReason>, usage: Option<UsageTotal>) -> Result<End, Fault> {
        let mut asks_person = false;
        let mut calls = Vec::new();
        for item in self.items.told() {
            let (ItemKind::Question(request) | ItemKind::Approval(request)) = &item.kind else {
                continue;
            };
            asks_person |= !self.items.is_of_client(&request.name);
            calls.push(json!({
                "index": calls.len(),
                "id": item.key.id("call", &self.name),
                "type": "function",
                "function": { "name": request.name, "arguments": arguments(request.input.as_ref()) },
            }));
        }
        if asks_person && !self.is_kept {
            return Err(Fault::invalid(
                "conversation_required",
                "messages",
                "The agent asks a person, which needs a conversation that is kept: name one in the header X-Conversation-Id.",
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

    /// Waits for the end of the turn, whose chunks were all read.
    async fn ended(&self, turn: &mut ServedTurn, context: &Context) -> Result<End, Fault> {
        let output = turn
            .output()
            .await
            .map_err(|error| Fault::failed_turn(&error.to_wire(exposure_of(context))))?;
        if let Some(error) = &output.error {
            return Err(Fault::failed_turn(error));
        }
        self.end(output.finish_reason, output.usage)
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
                if self.tells_usage {
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

async fn whole(
    mut turn: ServedTurn,
    mut told: Completion,
    context: &Context,
) -> Result<Response<Body>, Fault> {
    loop {
        let chunks = turn.next().await;
        if chunks.is_empty() {
            break;
        }
        for chunk in &chunks {
            told.chunk(chunk);
        }
    }
    let end = told.ended(&mut turn, context).await?;
    let text = if told.text.is_empty() && !end.calls.is_empty() {
        Value::Null
    } else {
        json!(told.text)
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
    let mut answer = told.wire(&json!([{
        "index": 0,
        "message": message,
        "logprobs": null,
        "finish_reason": end.reason,
    }]));
    answer["object"] = json!("chat.completion");
    answer["usage"] = usage(end.usage.as_ref());
    Ok(json_response(StatusCode::OK, &answer))
}

/// The state of a stream between two pieces of its body.
enum Streaming {
    Beginning,
    Running,
    Over,
}

fn streamed(turn: ServedTurn, told: Completion, context: Context) -> Response<Body> {
    // Boxed, because the stream moves it for every event.
    let state = Box::new((turn, told, context, Streaming::Beginning));
    let body = stream::unfold(state, |mut state| async move {
        let (turn, told, context, phase) = &mut *state;
        let (bytes, next) = match phase {
            Streaming::Over => return None,
            Streaming::Beginning => {
                let first = told.delta(&json!({ "role": "assistant", "content": "" }), None);
                (first, Streaming::Running)
            }
            Streaming::Running => loop {
                let chunks = turn.next().await;
                if chunks.is_empty() {
                    let end = told.ended(turn, context).await;
                    break (told.last_lines(&end), Streaming::Over);
                }
                let mut lines = Vec::new();
                for chunk in &chunks {
                    let new = told.chunk(chunk);
                    if !new.is_empty() {
                        lines.extend(told.delta(&json!({ "content": new }), None));
                    }
                }
                if !lines.is_empty() {
                    break (lines, Streaming::Running);
                }
            },
        };
        *phase = next;
        Some((bytes, state))
    });
    event_stream(body)
}
