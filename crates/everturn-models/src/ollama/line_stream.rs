//! From the lines of Ollama's stream to chunks and an answer.

use std::collections::BTreeMap;

use everturn_ai::{FinishReason, JsonObject, Message, ModelResponse, Part, ToolRequest, Usage};
use everturn_core::Result;
use serde_json::{Number, Value};
use uuid::Uuid;

use crate::{Draft, Events, WireTools};

/// Reads a stream to its terminal line.
///
/// # Errors
/// The error that the server reports; `UNAVAILABLE` if the stream ends before `done: true`.
pub(super) async fn read(
    mut lines: Events<'_>,
    mut draft: Draft<'_>,
    tools: &WireTools,
) -> Result<ModelResponse> {
    while let Some(line) = lines.next().await? {
        let line: Value = lines.read(&line)?;
        if line.get("error").is_some_and(|error| !error.is_null()) {
            return Err(lines.failure(&line));
        }
        let message = &line["message"];
        draft
            .reasoning(message["thinking"].as_str().unwrap_or_default())
            .await?;
        draft
            .text(message["content"].as_str().unwrap_or_default())
            .await?;
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let part = tool_request(call, tools);
            draft.show(part.clone()).await?;
            draft.push(part);
        }
        if line["done"] == true {
            return Ok(finished(&line, draft));
        }
    }
    Err(lines.truncated("`done: true`"))
}

/// Converts a call, with a generated id if the server assigns none.
fn tool_request(call: &Value, tools: &WireTools) -> Part {
    let function = &call["function"];
    let input = match &function["arguments"] {
        Value::Null => Value::Object(JsonObject::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(JsonObject::new()),
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        arguments => arguments.clone(),
    };
    let id = call["id"].as_str().filter(|id| !id.is_empty());
    let id = id.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned);
    let name = tools.meant_by(function["name"].as_str().unwrap_or_default());
    ToolRequest::new(name, tools.input(name, input))
        .with_reference(id)
        .into()
}

fn finished(line: &Value, draft: Draft<'_>) -> ModelResponse {
    let reason = match line["done_reason"].as_str() {
        None | Some("stop" | "") => FinishReason::Stop,
        Some("length") => FinishReason::Length,
        Some("load" | "unload") => FinishReason::Other,
        Some(_) => FinishReason::Unknown,
    };
    let (input, output) = (line["prompt_eval_count"].as_u64(), line["eval_count"].as_u64());
    let durations = line
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| match value {
            Value::Number(number) if name.ends_with("_duration") => Some((name.clone(), number.clone())),
            _ => None,
        });
    let durations: BTreeMap<String, Number> = durations.collect();
    let usage = Usage {
        input_tokens: input,
        output_tokens: output,
        total_tokens: input.zip(output).map(|(input, output)| input + output),
        custom: (!durations.is_empty()).then_some(durations),
        ..Usage::default()
    };
    ModelResponse {
        message: Some(Message::model(draft.into_parts())),
        finish_reason: Some(reason),
        finish_message: line["done_reason"]
            .as_str()
            .filter(|_| reason == FinishReason::Unknown)
            .map(str::to_owned),
        usage: Some(usage),
        custom: line
            .get("model")
            .map(|model| serde_json::json!({ "model": model })),
        ..ModelResponse::default()
    }
}
