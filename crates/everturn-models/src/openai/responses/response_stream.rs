//! From the events of a Responses stream to chunks and an answer.

use everturn_ai::{FinishReason, Media, Message, ModelResponse, ModelResponseChunk, Part, ToolRequest};
use everturn_core::{Emitter, Result};
use serde_json::Value;

use super::output::{self, Output};
use crate::openai::token_counts;
use crate::{Arguments, Events, WireTools};

/// Error codes that mean a refusal.
const REFUSALS: [&str; 4] = [
    "image_content_policy_violation",
    "bio_policy",
    "misalignment_policy_violation",
    "invalid_prompt",
];

/// An output item in progress.
struct Open {
    id: String,
    index: Option<u64>,
    /// Whether any of it was sent.
    is_shown: bool,
    call: Option<ToolRequest>,
    arguments: Arguments,
}

struct Answer<'a> {
    emitter: &'a Emitter<ModelResponseChunk>,
    provider: &'a str,
    tools: &'a WireTools,
    open: Vec<Open>,
    done: Vec<Value>,
}

/// Reads a stream to its terminal event.
///
/// # Errors
/// The error that the provider reports; `UNAVAILABLE` if the stream ends before its terminal event.
pub(super) async fn read(
    mut events: Events<'_>,
    emitter: &Emitter<ModelResponseChunk>,
    provider: &str,
    tools: &WireTools,
) -> Result<ModelResponse> {
    let mut answer = Answer {
        emitter,
        provider,
        tools,
        open: Vec::new(),
        done: Vec::new(),
    };
    while let Some(event) = events.next().await? {
        if event.data == b"[DONE]" {
            continue;
        }
        let event: Value = events.read(&event)?;
        match event["type"].as_str().unwrap_or_default() {
            "response.completed" | "response.incomplete" => return Ok(answer.finished(&event["response"])),
            "response.failed" => {
                let failed = &event["response"];
                let code = failed["error"]["code"].as_str().unwrap_or_default();
                if REFUSALS.contains(&code) {
                    return Ok(answer.blocked(failed));
                }
                return Err(events.failure(failed));
            }
            "error" => return Err(events.failure(&event)),
            "" if event.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(events.failure(&event));
            }
            kind => answer.take(kind, &event).await?,
        }
    }
    Err(events.truncated("'response.completed'"))
}

impl Answer<'_> {
    async fn take(&mut self, kind: &str, event: &Value) -> Result<()> {
        let delta = event["delta"].as_str().unwrap_or_default();
        match kind {
            "response.output_item.added" => self.begin(event),
            "response.output_item.done" => return self.end(event).await,
            "response.output_text.delta" => return self.show(event, Part::text, delta).await,
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                return self.show(event, Part::reasoning, delta).await;
            }
            "response.reasoning_summary_part.added" => {
                let is_further = event["summary_index"].as_u64().is_some_and(|index| index > 0);
                if is_further {
                    return self.show(event, Part::reasoning, "\n\n").await;
                }
            }
            "response.function_call_arguments.delta" => return self.arguments(event, delta).await,
            "response.image_generation_call.partial_image" => {
                let content = event["partial_image_b64"].as_str().unwrap_or_default();
                let format = event["output_format"].as_str().unwrap_or("png");
                let picture = Media::new(format!("data:image/{format};base64,{content}"));
                return self.emitter.send(Part::from(picture).into()).await;
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, event: &Value) {
        let item = &event["item"];
        let call = (item["type"] == "function_call").then(|| ToolRequest {
            name: self
                .tools
                .meant_by(item["name"].as_str().unwrap_or_default())
                .to_owned(),
            reference: output::call_id(item),
            partial: true,
            ..ToolRequest::default()
        });
        self.open.push(Open {
            id: item["id"].as_str().unwrap_or_default().to_owned(),
            index: event["output_index"].as_u64(),
            is_shown: false,
            call,
            arguments: Arguments::default(),
        });
    }

    /// The item that an event is about: by its id, else by its index, else the last one.
    fn item(&mut self, event: &Value) -> Option<&mut Open> {
        let id = event["item_id"]
            .as_str()
            .or_else(|| event["item"]["id"].as_str())
            .unwrap_or_default();
        let index = event["output_index"].as_u64();
        let by_id = self.open.iter().position(|open| !id.is_empty() && open.id == id);
        let by_index = || {
            self.open
                .iter()
                .position(|open| index.is_some() && open.index == index)
        };
        let place = by_id
            .or_else(by_index)
            .or_else(|| self.open.len().checked_sub(1))?;
        self.open.get_mut(place)
    }

    async fn show(&mut self, event: &Value, part: fn(String) -> Part, delta: &str) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        if let Some(open) = self.item(event) {
            open.is_shown = true;
        }
        if !self.emitter.is_streaming() {
            return Ok(());
        }
        self.emitter.send(part(delta.to_owned()).into()).await
    }

    async fn arguments(&mut self, event: &Value, delta: &str) -> Result<()> {
        if !self.emitter.is_streaming() || delta.is_empty() {
            return Ok(());
        }
        let tools = self.tools;
        let Some(open) = self.item(event) else {
            return Ok(());
        };
        open.arguments.push(delta);
        let (Some(call), Some(so_far)) = (&open.call, open.arguments.show()) else {
            return Ok(());
        };
        let partial = ToolRequest {
            input: Some(tools.input(&call.name, so_far)),
            ..call.clone()
        };
        self.emitter.send(Part::from(partial).into()).await
    }

    /// Processes the complete item, and sends the part of it that was not sent yet.
    async fn end(&mut self, event: &Value) -> Result<()> {
        let is_shown = self.item(event).is_some_and(|open| open.is_shown);
        let item = event["item"].clone();
        if self.emitter.is_streaming() && !is_shown {
            let parts = output::of_item(&item, self.provider, self.tools).parts;
            if !parts.is_empty() {
                self.emitter.send(ModelResponseChunk::new(parts)).await?;
            }
        }
        self.done.push(item);
        Ok(())
    }

    fn finished(mut self, response: &Value) -> ModelResponse {
        // The finished response is authoritative if the end of an item was missed.
        if let Some(items) = response["output"]
            .as_array()
            .filter(|items| items.len() > self.done.len())
        {
            self.done.clone_from(items);
        }
        let mut whole = Output::default();
        for item in &self.done {
            let output = output::of_item(item, self.provider, self.tools);
            whole.parts.extend(output.parts);
            whole.refusal = whole.refusal.or(output.refusal);
            whole.cut_call = whole.cut_call.or(output.cut_call);
        }
        let (reason, message) = finish(response, &whole);
        ModelResponse {
            message: Some(Message::model(whole.parts)),
            finish_reason: Some(reason),
            finish_message: message,
            usage: response
                .get("usage")
                .filter(|usage| usage.is_object())
                .map(token_counts::of_response),
            custom: Some(about(response)),
            ..ModelResponse::default()
        }
    }

    fn blocked(self, response: &Value) -> ModelResponse {
        let why = response["error"]["message"].as_str().map(str::to_owned);
        ModelResponse {
            finish_reason: Some(FinishReason::Blocked),
            finish_message: why.clone(),
            ..self.finished(response)
        }
    }
}

fn finish(response: &Value, whole: &Output) -> (FinishReason, Option<String>) {
    if let Some(refusal) = &whole.refusal {
        return (FinishReason::Blocked, Some(refusal.clone()));
    }
    if let Some(tool) = &whole.cut_call {
        let message = format!("the call of '{tool}' was cut in the middle of its arguments");
        return (FinishReason::Length, Some(message));
    }
    let why = response["incomplete_details"]["reason"].as_str();
    let reason = match (response["status"].as_str(), why) {
        (_, Some("max_output_tokens")) => FinishReason::Length,
        (_, Some("content_filter")) => FinishReason::Blocked,
        (_, Some("max_messages" | "steered")) => FinishReason::Other,
        (Some("completed"), _) => FinishReason::Stop,
        _ => FinishReason::Unknown,
    };
    (reason, why.map(str::to_owned))
}

/// Returns the other fields of the response.
fn about(response: &Value) -> Value {
    let known = ["id", "model", "created_at", "status", "service_tier"];
    let given = known.iter().filter(|name| !response[**name].is_null());
    given
        .map(|name| ((*name).to_owned(), response[*name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
