//! A server that plays OpenAI's Responses API, as strict as the real one: what that refuses, this refuses
//! with 400.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::server::{Reply, Request, Server, named_sse};

/// An answer of the model: its output items, whole.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    items: Vec<Value>,
    ending: Value,
}

impl Answer {
    /// An answer of these items that is complete.
    pub(crate) fn of(items: impl Into<Vec<Value>>) -> Self {
        Self {
            items: items.into(),
            ending: json!({ "status": "completed" }),
        }
    }

    /// The same answer, ended before it was complete.
    pub(crate) fn incomplete(self, reason: &str) -> Self {
        let ending = json!({ "status": "incomplete", "incomplete_details": { "reason": reason } });
        Self { ending, ..self }
    }

    /// The events that stream the answer.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut events = vec![
            json!({ "type": "response.created", "response": { "id": "resp_1", "status": "in_progress" } }),
            json!({ "type": "response.in_progress", "response": { "id": "resp_1" } }),
        ];
        for (index, item) in self.items.iter().enumerate() {
            events.extend(item_events(index, item));
        }
        let mut response = self.ending.clone();
        response["id"] = json!("resp_1");
        response["model"] = json!("gpt-test");
        response["output"] = json!(self.items);
        response["usage"] = json!({
            "input_tokens": 20, "input_tokens_details": { "cached_tokens": 8, "cache_write_tokens": 3 },
            "output_tokens": 12, "output_tokens_details": { "reasoning_tokens": 5 }, "total_tokens": 32,
        });
        let kind = format!("response.{}", response["status"].as_str().unwrap());
        events.push(json!({ "type": kind, "response": response }));
        for (number, event) in events.iter_mut().enumerate() {
            event["sequence_number"] = json!(number);
        }
        events
    }

    pub(crate) fn reply(&self) -> Reply {
        Reply::events(named_sse(&self.events()))
    }
}

fn item_events(index: usize, item: &Value) -> Vec<Value> {
    let about = |kind: &str, fields: Value| {
        let mut event = fields;
        event["type"] = json!(kind);
        event["item_id"] = item["id"].clone();
        event["output_index"] = json!(index);
        event
    };
    let mut begun = item.clone();
    let mut deltas = Vec::new();
    match item["type"].as_str().unwrap() {
        "message" => {
            begun["content"] = json!([]);
            for (place, content) in item["content"].as_array().unwrap().iter().enumerate() {
                let (kind, field) = match content["refusal"].as_str() {
                    Some(_) => ("response.refusal", "refusal"),
                    None => ("response.output_text", "text"),
                };
                deltas.push(about(
                    "response.content_part.added",
                    json!({ "content_index": place }),
                ));
                for delta in pieces(content[field].as_str().unwrap()) {
                    let fields = json!({ "delta": delta, "content_index": place, "obfuscation": "xx" });
                    deltas.push(about(&format!("{kind}.delta"), fields));
                }
                deltas.push(about(&format!("{kind}.done"), json!({ "text": content[field] })));
            }
        }
        "reasoning" => {
            begun["summary"] = json!([]);
            // The first item is incomplete.
            begun["encrypted_content"] = json!("incomplete");
            for (place, part) in item["summary"].as_array().unwrap().iter().enumerate() {
                deltas.push(about(
                    "response.reasoning_summary_part.added",
                    json!({ "summary_index": place }),
                ));
                for delta in pieces(part["text"].as_str().unwrap()) {
                    let fields = json!({ "delta": delta, "summary_index": place });
                    deltas.push(about("response.reasoning_summary_text.delta", fields));
                }
            }
        }
        "function_call" => {
            begun["arguments"] = json!("");
            for delta in pieces(item["arguments"].as_str().unwrap()) {
                deltas.push(about(
                    "response.function_call_arguments.delta",
                    json!({ "delta": delta }),
                ));
            }
        }
        other => deltas.push(about(&format!("response.{other}.in_progress"), json!({}))),
    }
    let added = json!({ "type": "response.output_item.added", "output_index": index, "item": begun });
    let done = json!({ "type": "response.output_item.done", "output_index": index, "item": item });
    [vec![added], deltas, vec![done]].concat()
}

/// A text in pieces of a few characters.
fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(4).map(|piece| piece.iter().collect()).collect()
}

pub(crate) fn message(id: &str, text: &str) -> Value {
    let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
    json!({ "type": "message", "id": id, "role": "assistant", "status": "completed", "content": content })
}

pub(crate) fn reasoning(id: &str, encrypted: &str, summary: &[&str]) -> Value {
    let summary: Vec<Value> = summary
        .iter()
        .map(|text| json!({ "type": "summary_text", "text": text }))
        .collect();
    json!({ "type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted })
}

pub(crate) fn call(id: &str, call_id: &str, name: &str, arguments: &str) -> Value {
    json!({
        "type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments,
        "status": "completed",
    })
}

/// A server that gives these answers and refuses what the API refuses.
pub(crate) async fn start_strict(answers: impl IntoIterator<Item = Answer>) -> Server {
    let mut answers: VecDeque<Answer> = answers.into_iter().collect();
    let mut given: Vec<Value> = Vec::new();
    Server::start(move |request| {
        if let Err(refusal) = check(request, &given) {
            let error =
                json!({ "error": { "message": refusal, "type": "invalid_request_error", "code": null } });
            return Reply::json(&error).status(400);
        }
        let answer = answers.pop_front().expect("an answer is left");
        given.extend(answer.items.iter().cloned());
        answer.reply()
    })
    .await
}

const FIELDS: [&str; 18] = [
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "temperature",
    "top_p",
    "text",
    "reasoning",
    "include",
    "store",
    "stream",
    "prompt_cache_key",
    "service_tier",
    "metadata",
    "truncation",
];

/// Rejects the requests that the API rejects, with a message that names the position.
pub(crate) fn check(request: &Request, given: &[Value]) -> Result<(), String> {
    let body = &request.body;
    if let Some(unknown) = body
        .as_object()
        .unwrap()
        .keys()
        .find(|name| !FIELDS.contains(&name.as_str()))
    {
        return Err(format!("Unknown parameter: '{unknown}'"));
    }
    if body["store"] != false || body["include"] != json!(["reasoning.encrypted_content"]) {
        return Err("reasoning would be lost".to_owned());
    }
    let input = body["input"].as_array().ok_or("input is no list")?;
    for (place, item) in input.iter().enumerate() {
        check_item(place, input, given)?;
        let _ = item;
    }
    Ok(())
}

fn check_item(place: usize, input: &[Value], given: &[Value]) -> Result<(), String> {
    let item = &input[place];
    let same = given
        .iter()
        .find(|known| known["id"] == item["id"] && !item["id"].is_null());
    match item["type"].as_str().unwrap_or_default() {
        "message" if item["role"] == "assistant" => {
            if item["id"].is_string() && same != Some(item) {
                return Err(format!(
                    "Item {place} is not the message that was given out: {item}"
                ));
            }
            let content = item["content"].as_array().ok_or("content is no list")?;
            let is_output = |content: &Value| content["type"] == "output_text";
            content
                .iter()
                .all(is_output)
                .then_some(())
                .ok_or_else(|| format!("item {place}: not output_text"))
        }
        "message" => {
            let content = item["content"].as_array().ok_or("content is no list")?;
            let is_input = |content: &Value| {
                content["type"]
                    .as_str()
                    .is_some_and(|kind| kind.starts_with("input_"))
            };
            (!content.is_empty() && content.iter().all(is_input))
                .then_some(())
                .ok_or_else(|| format!("item {place}: not input"))
        }
        "reasoning" => {
            if same != Some(item) {
                return Err(format!(
                    "The encrypted content of item {place} could not be verified: {item}"
                ));
            }
            let at = given.iter().position(|known| known == item).unwrap();
            let led_to = given.get(at + 1).map(|next| &next["id"]);
            if led_to != input.get(place + 1).map(|next| &next["id"]) {
                return Err(format!(
                    "Item {place} of type 'reasoning' was provided without its required following item"
                ));
            }
            Ok(())
        }
        "function_call" => {
            let is_answered = input[place..]
                .iter()
                .any(|other| other["type"] == "function_call_output" && other["call_id"] == item["call_id"]);
            if !is_answered {
                return Err(format!(
                    "No tool output found for function call {}",
                    item["call_id"]
                ));
            }
            if item["id"].is_string() && same.is_none_or(|same| same["call_id"] != item["call_id"]) {
                return Err(format!("item {place}: no call of that id"));
            }
            Ok(())
        }
        "function_call_output" => {
            let is_called = input[..place]
                .iter()
                .any(|other| other["type"] == "function_call" && other["call_id"] == item["call_id"]);
            is_called
                .then_some(())
                .ok_or_else(|| format!("No tool call found for output {}", item["call_id"]))
        }
        _ if same == Some(item) => Ok(()),
        kind => Err(format!(
            "Item {place} of type '{kind}' was changed or never given out"
        )),
    }
}
