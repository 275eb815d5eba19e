//! `RunAgentInput`: the body of a run's request.
//!
//! Unknown members, roles and kinds of parts are ignored, as the protocol requires; an invalid value of a
//! known member is an error.

use std::sync::Arc;

use bytes::Bytes;
use everturn_agent::{ClientTool, SessionId};
use everturn_ai::{Media, Part, PartKind};
use everturn_core::offload::{HEAVY, offload};
use everturn_core::{Error, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The request of a run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunInput {
    pub(crate) thread_id: String,
    pub(crate) run_id: String,
    messages: Vec<RawMessage>,
    protocol_version: Option<String>,
    pub(crate) parent_run_id: Option<String>,
    state: Option<Value>,
    tools: Option<Vec<RawTool>>,
    context: Option<Vec<ContextEntry>>,
    pub(crate) forwarded_props: Option<Value>,
    resume: Option<Vec<Resume>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMessage {
    id: String,
    role: String,
    content: Option<Value>,
    tool_calls: Option<Vec<RawCall>>,
    tool_call_id: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct RawCall {
    id: String,
    function: RawFunction,
}

#[derive(Debug, Clone, Deserialize)]
struct RawFunction {
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Debug, Clone, Deserialize)]
struct RawTool {
    name: String,
    description: Option<String>,
    parameters: Option<Arc<Value>>,
}

#[derive(Debug, Clone, Deserialize)]
struct ContextEntry {
    description: String,
    value: String,
}

/// The answer to one interrupt.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resume {
    pub(crate) interrupt_id: String,
    pub(crate) status: ResumeStatus,
    #[serde(default)]
    pub(crate) payload: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ResumeStatus {
    Resolved,
    Cancelled,
}

/// One message of the conversation that the client sends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientMessage {
    pub(crate) id: String,
    pub(crate) content: ClientContent,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClientContent {
    User(Vec<Part>),
    Assistant {
        text: String,
        calls: Vec<ClientCall>,
    },
    /// The result of a call.
    Tool {
        call: String,
        content: String,
    },
    /// Reasoning of the model, which is ignored.
    Reasoning,
    /// An ignored message: of the system, the developer, an activity or an unknown role.
    Other,
}

/// A call that the client sends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl RunInput {
    /// Reads a request's body.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the member at fault.
    pub(crate) async fn read(body: &Bytes) -> Result<Self> {
        if body.len() <= HEAVY {
            return Self::parse(body);
        }
        let body = body.clone();
        offload(move || Self::parse(&body)).await
    }

    fn parse(body: &[u8]) -> Result<Self> {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let input: Self = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let place = if path == "." {
                String::new()
            } else {
                format!(" at '{path}'")
            };
            invalid(format!("the body is not a run's input{place}: {}", error.inner()))
        })?;
        reader
            .end()
            .map_err(|error| invalid(format!("the body is not a run's input: {error}")))?;
        for (name, value) in [("threadId", &input.thread_id), ("runId", &input.run_id)] {
            if value.is_empty() {
                return Err(invalid(format!("'{name}' is empty")));
            }
        }
        Ok(input)
    }

    pub(crate) fn session(&self) -> SessionId {
        SessionId::from(self.thread_id.as_str())
    }

    /// Returns whether the client supports version 1.0 of the protocol.
    pub(crate) fn is_current(&self) -> bool {
        self.protocol_version.is_some()
    }

    /// Returns the client's state. An empty object counts as none, because it is the clients' initial state.
    pub(crate) fn state(&self) -> Option<&Value> {
        let is_said = |state: &&Value| match state {
            Value::Null => false,
            Value::Object(members) => !members.is_empty(),
            _ => true,
        };
        self.state.as_ref().filter(is_said)
    }

    pub(crate) fn resume(&self) -> &[Resume] {
        self.resume.as_deref().unwrap_or_default()
    }

    /// Returns the application's tools.
    pub(crate) fn tools(&self) -> Vec<ClientTool> {
        let tool = |tool: &RawTool| ClientTool {
            description: tool.description.clone(),
            input_schema: tool.parameters.clone().filter(|schema| schema.is_object()),
            ..ClientTool::new(&tool.name)
        };
        self.tools.iter().flatten().map(tool).collect()
    }

    /// Returns the application's instructions for the model.
    pub(crate) fn instructions(&self) -> Vec<String> {
        let text = |entry: &ContextEntry| match entry.description.as_str() {
            "" => entry.value.clone(),
            description => format!("{description}: {}", entry.value),
        };
        self.context.iter().flatten().map(text).collect()
    }

    /// Returns the conversation that the client sends.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the member at fault.
    pub(crate) fn client_messages(&self) -> Result<Vec<ClientMessage>> {
        let messages = self.messages.iter().enumerate();
        messages
            .map(|(index, message)| message.to_client_message(&format!("messages[{index}]")))
            .collect()
    }
}

impl RawMessage {
    fn to_client_message(&self, at: &str) -> Result<ClientMessage> {
        let content = self.content.as_ref().filter(|content| !content.is_null());
        let content = match self.role.as_str() {
            "user" => ClientContent::User(parts(content, at)?),
            "assistant" => ClientContent::Assistant {
                text: text(content, at)?,
                calls: self
                    .tool_calls
                    .iter()
                    .flatten()
                    .map(RawCall::to_client_call)
                    .collect(),
            },
            "tool" => {
                let call = self.tool_call_id.clone();
                ClientContent::Tool {
                    call: call.ok_or_else(|| invalid(format!("'{at}.toolCallId' is missing")))?,
                    content: match (text(content, at)?, &self.error) {
                        (content, Some(error)) if content.is_empty() => error.clone(),
                        (content, _) => content,
                    },
                }
            }
            "reasoning" => ClientContent::Reasoning,
            _ => ClientContent::Other,
        };
        Ok(ClientMessage {
            id: self.id.clone(),
            content,
        })
    }
}

impl RawCall {
    fn to_client_call(&self) -> ClientCall {
        ClientCall {
            id: self.id.clone(),
            name: self.function.name.clone(),
            arguments: self.function.arguments.clone(),
        }
    }
}

/// Reads the text of a message's content.
fn text(content: Option<&Value>, at: &str) -> Result<String> {
    match content {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => Ok(parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect()),
        Some(_) => Err(wrong_content(at)),
    }
}

/// Reads the parts of a user's message. Parts of unknown kinds, and files of another provider, are left out.
fn parts(content: Option<&Value>, at: &str) -> Result<Vec<Part>> {
    let given = match content {
        None => return Err(invalid(format!("'{at}.content' is missing"))),
        Some(Value::String(text)) => return Ok(vec![Part::text(text)]),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(wrong_content(at)),
    };
    let mut parts = Vec::with_capacity(given.len());
    for (index, part) in given.iter().enumerate() {
        let at = format!("{at}.content[{index}]");
        let Value::Object(part) = part else {
            return Err(invalid(format!("'{at}' must be an object")));
        };
        match member(part, "type", &at)? {
            "text" => parts.push(Part::text(member(part, "text", &at)?)),
            "image" | "audio" | "video" | "document" => parts.extend(media(part, &at)?),
            // Older clients send every file with this kind.
            "binary" => parts.extend(binary(part)),
            _ => {}
        }
    }
    Ok(parts)
}

fn media(part: &Map<String, Value>, at: &str) -> Result<Option<Part>> {
    let Some(Value::Object(source)) = part.get("source") else {
        return Err(invalid(format!("'{at}.source' must be an object")));
    };
    let at = format!("{at}.source");
    let mime = source.get("mimeType").and_then(Value::as_str);
    Ok(match member(source, "type", &at)? {
        "data" => {
            let mime = member(source, "mimeType", &at)?;
            let data = member(source, "value", &at)?;
            Some(file(&format!("data:{mime};base64,{data}"), Some(mime)))
        }
        "url" => Some(file(member(source, "value", &at)?, mime)),
        _ => None,
    })
}

fn binary(part: &Map<String, Value>) -> Option<Part> {
    let text = |name: &str| part.get(name).and_then(Value::as_str);
    let mime = text("mimeType");
    match (text("data"), text("url")) {
        (Some(data), _) => {
            let mime = mime.unwrap_or("application/octet-stream");
            Some(file(&format!("data:{mime};base64,{data}"), Some(mime)))
        }
        (None, Some(url)) => Some(file(url, mime)),
        (None, None) => None,
    }
}

fn file(url: &str, mime: Option<&str>) -> Part {
    let media = Media::new(url);
    let media = match mime {
        Some(mime) => media.with_content_type(mime),
        None => media,
    };
    Part::new(PartKind::Media(Box::new(media)))
}

fn member<'a>(object: &'a Map<String, Value>, name: &str, at: &str) -> Result<&'a str> {
    match object.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(invalid(format!("'{at}.{name}' must be a string"))),
        None => Err(invalid(format!("'{at}.{name}' is missing"))),
    }
}

fn wrong_content(at: &str) -> Error {
    invalid(format!("'{at}.content' must be a string or a list of parts"))
}

/// Returns the error of a request that cannot be served as it is.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::invalid_argument(message.into()).with_public()
}
