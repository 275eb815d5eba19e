//! The conversation that a client sends: the items or messages of either protocol, in one form.

use std::sync::Arc;

use everturn_agent::ClientTool;
use everturn_ai::{Media, Part, PartKind};
use everturn_server::ServedAgent;
use serde_json::{Map, Value};

use crate::fault::Fault;

/// One entry of a request's conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TranscriptItem {
    /// A message of the user.
    User { id: Option<String>, content: Vec<Part> },
    /// Instructions from the client for the model.
    Instructions(String),
    /// An assistant message supplied by the client.
    Assistant { id: Option<String>, text: String },
    /// A call supplied by the client.
    Call {
        id: String,
        name: String,
        arguments: Value,
    },
    /// The output of a call.
    Output { call: String, output: Value },
    /// The answer to a call that requires approval.
    Approval {
        call: String,
        approve: bool,
        reason: Option<String>,
    },
    /// An item of the server that is only referenced, or that only an agent creates.
    Known { id: String, what: String },
}

impl TranscriptItem {
    /// Returns the id of an item of the server that the client sends back.
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::User { id, .. } | Self::Assistant { id, .. } => id.as_deref(),
            Self::Call { id, .. } | Self::Known { id, .. } => Some(id),
            _ => None,
        }
    }
}

/// Returns a field that may be missing or null.
pub(crate) fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// Returns a text that may be missing.
pub(crate) fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Fault> {
    match field(object, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Fault::wrong_type(name, "a string")),
    }
}

/// Returns a boolean that may be missing.
pub(crate) fn flag(object: &Map<String, Value>, name: &str) -> Result<Option<bool>, Fault> {
    match field(object, name) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(Fault::wrong_type(name, "a boolean")),
    }
}

fn required<'a>(object: &'a Map<String, Value>, at: &str, name: &str) -> Result<&'a str, Fault> {
    match field(object, name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Fault::wrong_type(format!("{at}.{name}"), "a string")),
        None => Err(Fault::missing(&format!("{at}.{name}"))),
    }
}

/// Reads the `input` of a request to `/responses`.
pub(crate) fn items(input: &Value) -> Result<Vec<TranscriptItem>, Fault> {
    let items = match input {
        Value::String(text) => {
            return Ok(vec![TranscriptItem::User {
                id: None,
                content: vec![Part::text(text)],
            }]);
        }
        Value::Array(items) => items,
        _ => return Err(Fault::wrong_type("input", "a string or an array of items")),
    };
    let mut transcript = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let at = format!("input[{index}]");
        let Some(item) = item.as_object() else {
            return Err(Fault::wrong_type(at, "an object"));
        };
        transcript.extend(one_item(item, &at)?);
    }
    Ok(transcript)
}

fn one_item(item: &Map<String, Value>, at: &str) -> Result<Option<TranscriptItem>, Fault> {
    let id = || text(item, "id").map(|id| id.map(str::to_owned));
    let kind = match field(item, "type") {
        None => "message",
        Some(Value::String(kind)) => kind,
        Some(_) => return Err(Fault::wrong_type(format!("{at}.type"), "a string")),
    };
    Ok(Some(match kind {
        "message" => return message(item, at, id()?),
        "item_reference" => TranscriptItem::Known {
            id: required(item, at, "id")?.to_owned(),
            what: kind.to_owned(),
        },
        "function_call" => TranscriptItem::Call {
            id: required(item, at, "call_id")?.to_owned(),
            name: required(item, at, "name")?.to_owned(),
            arguments: arguments(item, at)?,
        },
        "function_call_output" => TranscriptItem::Output {
            call: required(item, at, "call_id")?.to_owned(),
            output: match item.get("output") {
                Some(Value::String(text)) => read_output(text),
                Some(other) => other.clone(),
                None => return Err(Fault::missing(&format!("{at}.output"))),
            },
        },
        "mcp_approval_response" => TranscriptItem::Approval {
            call: required(item, at, "approval_request_id")?.to_owned(),
            approve: flag(item, "approve")?.ok_or_else(|| Fault::missing(&format!("{at}.approve")))?,
            reason: text(item, "reason")?.map(str::to_owned),
        },
        "mcp_call" | "mcp_approval_request" | "reasoning" => TranscriptItem::Known {
            id: id()?.unwrap_or_default(),
            what: kind.to_owned(),
        },
        other => {
            return Err(Fault::invalid(
                "unsupported_value",
                format!("{at}.type"),
                format!("Items of the type '{other}' are not supported here."),
            ));
        }
    }))
}

/// Reads the output of a function: JSON where it is JSON, else the text.
fn read_output(text: &str) -> Value {
    match serde_json::from_str(text) {
        // A number or a quoted word is usually meant as text.
        Ok(value @ (Value::Object(_) | Value::Array(_) | Value::Bool(_) | Value::Null)) => value,
        _ => Value::String(text.to_owned()),
    }
}

fn arguments(call: &Map<String, Value>, at: &str) -> Result<Value, Fault> {
    let text = required(call, at, "arguments")?;
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    serde_json::from_str(text).map_err(|_| Fault::wrong_type(format!("{at}.arguments"), "JSON"))
}

fn message(item: &Map<String, Value>, at: &str, id: Option<String>) -> Result<Option<TranscriptItem>, Fault> {
    let role = required(item, at, "role")?;
    let content = field(item, "content");
    Ok(match role {
        "user" => Some(TranscriptItem::User {
            id,
            content: parts(content, &format!("{at}.content"))?,
        }),
        "system" | "developer" => Some(TranscriptItem::Instructions(joined(
            content,
            &format!("{at}.content"),
        )?)),
        "assistant" => Some(TranscriptItem::Assistant {
            id,
            text: joined(content, &format!("{at}.content"))?,
        }),
        other => {
            return Err(Fault::invalid(
                "invalid_value",
                format!("{at}.role"),
                format!("'{other}' is not a role."),
            ));
        }
    })
}

/// Reads the text of a message's content.
fn joined(content: Option<&Value>, at: &str) -> Result<String, Fault> {
    match content {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => Ok(parts
            .iter()
            .filter_map(|part| part.get("text").or_else(|| part.get("refusal"))?.as_str())
            .collect()),
        Some(_) => Err(Fault::wrong_type(at, "a string or an array of parts")),
    }
}

/// Reads the parts of a user's message.
fn parts(content: Option<&Value>, at: &str) -> Result<Vec<Part>, Fault> {
    let given = match content {
        None => return Err(Fault::missing(at)),
        Some(Value::String(text)) => return Ok(vec![Part::text(text)]),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(Fault::wrong_type(at, "a string or an array of parts")),
    };
    let mut parts = Vec::with_capacity(given.len());
    for (index, part) in given.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let Some(part) = part.as_object() else {
            return Err(Fault::wrong_type(at, "an object"));
        };
        parts.push(one_part(part, &at)?);
    }
    Ok(parts)
}

fn one_part(part: &Map<String, Value>, at: &str) -> Result<Part, Fault> {
    let kind = required(part, at, "type")?;
    let no_file_ids = || {
        Fault::invalid(
            "unsupported_value",
            format!("{at}.file_id"),
            "Uploaded files are not stored here: send the file itself.",
        )
    };
    Ok(match kind {
        "input_text" | "text" | "output_text" => Part::text(required(part, at, "text")?),
        "input_image" | "image_url" => {
            let url = match field(part, "image_url") {
                Some(Value::Object(image)) => required(image, at, "url")?,
                Some(_) => required(part, at, "image_url")?,
                None => return Err(no_file_ids()),
            };
            media(url, "image/*")
        }
        "input_file" | "file" => {
            let file = part.get("file").and_then(Value::as_object).unwrap_or(part);
            match (text(file, "file_data")?, text(file, "file_url")?) {
                (Some(data), _) if data.starts_with("data:") => media(data, "application/octet-stream"),
                (Some(data), _) => media(&format!("data:application/pdf;base64,{data}"), "application/pdf"),
                (None, Some(url)) => media(url, "application/octet-stream"),
                (None, None) => return Err(no_file_ids()),
            }
        }
        "input_audio" => {
            let audio = part.get("input_audio").and_then(Value::as_object).unwrap_or(part);
            let format = text(audio, "format")?.unwrap_or("wav");
            let kind = if format == "mp3" {
                "audio/mpeg".to_owned()
            } else {
                format!("audio/{format}")
            };
            let data = required(audio, at, "data")?;
            media(&format!("data:{kind};base64,{data}"), &kind)
        }
        other => {
            return Err(Fault::invalid(
                "unsupported_value",
                format!("{at}.type"),
                format!("Content of the type '{other}' is not supported here."),
            ));
        }
    })
}

/// Returns a media part. A data URL contains its type.
fn media(url: &str, otherwise: &str) -> Part {
    let stated = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split([';', ',']).next())
        .filter(|kind| !kind.is_empty());
    let media = Media::new(url);
    let media = match stated {
        Some(kind) => media.with_content_type(kind),
        // The type of a remote picture is unknown before it is fetched.
        None if otherwise.ends_with('*') => media,
        None => media.with_content_type(otherwise),
    };
    Part::new(PartKind::Media(Box::new(media)))
}

/// Reads the `messages` of a request to `/chat/completions`.
pub(crate) fn messages(messages: &Value) -> Result<Vec<TranscriptItem>, Fault> {
    let Value::Array(messages) = messages else {
        return Err(Fault::wrong_type("messages", "an array of messages"));
    };
    let mut transcript = Vec::with_capacity(messages.len());
    for (index, entry) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        let Some(entry) = entry.as_object() else {
            return Err(Fault::wrong_type(at, "an object"));
        };
        if field(entry, "role").and_then(Value::as_str) == Some("tool") {
            let output = joined(field(entry, "content"), &at)?;
            transcript.push(TranscriptItem::Output {
                call: required(entry, &at, "tool_call_id")?.to_owned(),
                output: read_output(&output),
            });
            continue;
        }
        let calls = field(entry, "tool_calls").and_then(Value::as_array);
        match message(entry, &at, None)? {
            Some(TranscriptItem::Assistant { text, .. }) if text.is_empty() && calls.is_some() => {}
            Some(other) => transcript.push(other),
            None => {}
        }
        for call in calls.into_iter().flatten() {
            let at = format!("{at}.tool_calls");
            let (Some(call), Some(function)) =
                (call.as_object(), call.get("function").and_then(Value::as_object))
            else {
                return Err(Fault::wrong_type(at, "calls of functions"));
            };
            transcript.push(TranscriptItem::Call {
                id: required(call, &at, "id")?.to_owned(),
                name: required(function, &at, "name")?.to_owned(),
                arguments: arguments(function, &at)?,
            });
        }
    }
    Ok(transcript)
}

/// Reads the client's functions. On Chat Completions they are one level deeper.
pub(crate) fn tools(
    body: &Map<String, Value>,
    nested: bool,
    agent: &ServedAgent,
) -> Result<Vec<ClientTool>, Fault> {
    let given = match field(body, "tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(Fault::wrong_type("tools", "an array of tools")),
    };
    let mut tools = Vec::with_capacity(given.len());
    for (index, tool) in given.iter().enumerate() {
        let at = format!("tools[{index}]");
        let Some(tool) = tool.as_object() else {
            return Err(Fault::wrong_type(at, "an object"));
        };
        let kind = required(tool, &at, "type")?;
        if kind != "function" {
            return Err(Fault::invalid(
                "unsupported_value",
                format!("{at}.type"),
                format!(
                    "Tools of the type '{kind}' are not supported: an agent has its own tools, and clients supply functions."
                ),
            ));
        }
        let function = match tool.get("function").and_then(Value::as_object) {
            Some(function) if nested => function,
            _ => tool,
        };
        tools.push(ClientTool {
            description: text(function, "description")?.map(str::to_owned),
            input_schema: field(function, "parameters").cloned().map(Arc::new),
            ..ClientTool::new(required(function, &at, "name")?)
        });
    }
    if !tools.is_empty() && !agent.accepts_tools() {
        return Err(Fault::not_permitted("tools", agent.name(), "tools"));
    }
    Ok(tools)
}
