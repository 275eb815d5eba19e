//! The rules of strict Chat Completions servers: a pure check of a request.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::server::Request;

type Check = Result<(), String>;

const FIELDS: [&str; 15] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "max_tokens",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "reasoning_effort",
    "top_k",
];

/// The assistant messages that the server gave out so far. One that calls tools must come back with its
/// reasoning and with what was kept beside its calls.
#[derive(Debug, Default)]
pub(crate) struct Given(Vec<Value>);

impl Given {
    pub(crate) fn add(&mut self, message: &Value) {
        self.0.push(message.clone());
    }
}

fn ensure(holds: bool, refusal: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(refusal()) }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Rejects the requests that strict servers reject, with a message that names the position.
pub(crate) fn check(request: &Request, given: &Given) -> Check {
    let body = &request.body;
    ensure(request.path == "/v1/chat/completions", || {
        format!("no such path: {}", request.path)
    })?;
    check_fields(body, "the request", &FIELDS)?;
    ensure(!text(&body["model"]).is_empty(), || {
        "model is required".to_owned()
    })?;
    ensure(body["stream"] == true, || {
        "the tests stream everything".to_owned()
    })?;
    check_tools(body)?;
    let is_filled = list(&body["messages"]).next().is_some();
    ensure(is_filled, || "messages must not be empty".to_owned())?;
    for (index, message) in list(&body["messages"]).enumerate() {
        check_message(message).map_err(|refusal| format!("messages[{index}]: {refusal}"))?;
    }
    check_order(body)?;
    check_unchanged(body, given)
}

fn check_fields(object: &Value, place: &str, known: &[&str]) -> Check {
    let fields = object.as_object().into_iter().flatten();
    match fields
        .map(|(key, _)| key.as_str())
        .find(|key| !known.contains(key))
    {
        None => Ok(()),
        Some(key) => Err(format!("{place}: unknown parameter '{key}'")),
    }
}

fn check_tools(body: &Value) -> Check {
    let mut names = BTreeSet::new();
    for tool in list(&body["tools"]) {
        let function = &tool["function"];
        check_fields(
            function,
            "tools",
            &["name", "description", "parameters", "strict"],
        )?;
        let name = text(&function["name"]);
        ensure(tool["type"] == "function" && is_name(name), || {
            format!("tools: '{name}' is no name")
        })?;
        ensure(names.insert(name), || format!("tools: '{name}' is there twice"))?;
        let schema = &function["parameters"];
        let is_plain = ["oneOf", "anyOf", "allOf", "enum", "not"]
            .iter()
            .all(|keyword| schema[*keyword].is_null());
        ensure(schema["type"] == "object" && is_plain, || {
            format!("tools: the schema of '{name}' must have type 'object' and no 'oneOf' at the top level")
        })?;
    }
    ensure(body["tool_choice"].is_null() || !names.is_empty(), || {
        "'tool_choice' is only allowed when 'tools' are specified".to_owned()
    })
}

fn is_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=64).contains(&name.len()) && name.chars().all(is_allowed)
}

fn check_message(message: &Value) -> Check {
    let (content, calls) = (&message["content"], &message["tool_calls"]);
    match text(&message["role"]) {
        "system" => {
            check_fields(message, "system", &["role", "content"])?;
            ensure(!text(content).is_empty(), || {
                "content must not be empty".to_owned()
            })
        }
        "user" => {
            check_fields(message, "user", &["role", "content"])?;
            let is_filled = !text(content).is_empty() || list(content).next().is_some();
            ensure(is_filled, || "content must not be empty".to_owned())?;
            list(content).try_for_each(check_part)
        }
        "assistant" => {
            let known = ["role", "content", "tool_calls", "reasoning_content"];
            check_fields(message, "assistant", &known)?;
            let is_filled = content.is_string() || list(calls).next().is_some();
            ensure(is_filled, || "content or tool_calls is required".to_owned())?;
            ensure(calls.is_null() || list(calls).next().is_some(), || {
                "tool_calls must not be empty".to_owned()
            })?;
            list(calls).try_for_each(check_call)
        }
        "tool" => {
            check_fields(message, "tool", &["role", "content", "tool_call_id"])?;
            ensure(content.is_string(), || "content must be a string".to_owned())
        }
        role => Err(format!("'{role}' is no role")),
    }
}

fn check_part(part: &Value) -> Check {
    let is_known = match text(&part["type"]) {
        "text" => !text(&part["text"]).is_empty(),
        "image_url" => part["image_url"]["url"].is_string(),
        "file" => part["file"].is_object(),
        "input_audio" => part["input_audio"]["data"].is_string(),
        _ => false,
    };
    ensure(is_known, || format!("no such content: {part}"))
}

fn check_call(call: &Value) -> Check {
    check_fields(call, "tool_calls", &["id", "type", "function", "extra_content"])?;
    let function = &call["function"];
    ensure(
        !text(&call["id"]).is_empty() && call["type"] == "function",
        || format!("a call needs an id and a type: {call}"),
    )?;
    ensure(is_name(text(&function["name"])), || {
        format!("no function has this name: {call}")
    })?;
    let arguments = serde_json::from_str::<Value>(text(&function["arguments"]));
    ensure(arguments.is_ok_and(|arguments| arguments.is_object()), || {
        format!("arguments must be the JSON text of an object: {call}")
    })
}

/// Each call is answered by one message, before any other message.
fn check_order(body: &Value) -> Check {
    let mut open: Vec<&str> = Vec::new();
    for message in list(&body["messages"]) {
        if message["role"] == "tool" {
            let id = text(&message["tool_call_id"]);
            let place = open.iter().position(|call| *call == id);
            open.remove(place.ok_or_else(|| {
                format!("messages with role 'tool' must be a response to a preceding message with 'tool_calls': {id}")
            })?);
            continue;
        }
        ensure(open.is_empty(), || {
            format!("an assistant message with 'tool_calls' must be followed by tool messages: {open:?}")
        })?;
        for call in list(&message["tool_calls"]) {
            let id = text(&call["id"]);
            ensure(!open.contains(&id), || {
                format!("the id of a call is there twice: {id}")
            })?;
            open.push(id);
        }
    }
    ensure(open.is_empty(), || {
        format!("an assistant message with 'tool_calls' must be followed by tool messages: {open:?}")
    })
}

/// A message with calls that the server gave out comes back as it was.
fn check_unchanged(body: &Value, given: &Given) -> Check {
    for message in list(&body["messages"]) {
        let id = &message["tool_calls"][0]["id"];
        let known = given
            .0
            .iter()
            .find(|known| !id.is_null() && known["tool_calls"][0]["id"] == *id);
        let Some(known) = known else { continue };
        ensure(known["reasoning_content"] == message["reasoning_content"], || {
            format!("the reasoning_content in the thinking mode must be passed back: {id}")
        })?;
        for (sent, call) in list(&message["tool_calls"]).zip(list(&known["tool_calls"])) {
            ensure(sent["extra_content"] == call["extra_content"], || {
                format!("the thought signature of the call is not valid: {id}")
            })?;
        }
    }
    Ok(())
}
