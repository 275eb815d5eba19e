//! Prompts of a server, registered as prompts.

use std::sync::Arc;

use everturn_ai::JsonObject;
use everturn_ai::prompt::{MessagesSlot, PromptDefinition, PromptScope};
use everturn_ai::{Message, Messages};
use everturn_core::{Error, Registry, Result, Schema};
use rmcp::model::{ClientRequest, GetPromptRequest, GetPromptRequestParams, Prompt, ServerResult};
use serde_json::{Value, json};

use super::RemoteServer;
use crate::{content, fault};

/// Defines a listed prompt.
pub(crate) fn register(server: &Arc<RemoteServer>, listed: &Prompt, registry: &Registry) -> Result<()> {
    let messages = {
        let (server, name) = (Arc::clone(server), listed.name.clone());
        MessagesSlot::computed(move |scope| {
            let (server, name) = (Arc::clone(&server), name.clone());
            async move { Ok(messages(&server, &name, scope).await?) }
        })
    };
    let origin = json!({ "server": server.name.as_ref(), "prompt": listed.name, "title": listed.title });
    let mut definition = PromptDefinition::new(server.name_of(&listed.name))
        .input_schema(schema(listed)?)
        .metadata("mcp", origin)
        .messages(messages);
    if let Some(description) = &listed.description {
        definition = definition.description(description.as_str());
    }
    definition.define(registry).map(drop)
}

/// Returns the server's messages, followed by the conversation.
async fn messages(server: &Arc<RemoteServer>, name: &str, scope: PromptScope) -> Result<Messages> {
    let mut params = GetPromptRequestParams::new(name);
    params.arguments = Some(arguments(scope.input));
    let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params));
    let result = match server.request(request, &scope.context, None).await? {
        ServerResult::GetPromptResult(result) => result,
        ServerResult::InputRequiredResult(_) => return Err(asks(server, "prompt", name)),
        _ => return Err(fault::unexpected(&server.name, "a prompt")),
    };
    let own = result.messages.into_iter().map(content::message);
    let conversation = scope.conversation.iter().cloned();
    Ok(own.chain(conversation).collect::<Vec<Message>>().into())
}

/// Returns the error of a prompt or resource that asks a question: only tools may ask.
pub(crate) fn asks(server: &RemoteServer, what: &str, name: &str) -> Error {
    Error::failed_precondition(format!(
        "MCP server '{}' asks for input before it gives the {what} '{name}', which only tools can pass on",
        server.name
    ))
}

/// Converts arguments to texts, as the protocol requires.
fn arguments(input: Value) -> JsonObject {
    let Value::Object(input) = input else {
        return JsonObject::new();
    };
    let text = |value: Value| match value {
        Value::String(text) => Value::String(text),
        other => Value::String(other.to_string()),
    };
    let given = input.into_iter().filter(|(_, value)| !value.is_null());
    given.map(|(name, value)| (name, text(value))).collect()
}

fn schema(listed: &Prompt) -> Result<Schema> {
    let arguments = listed.arguments.as_deref().unwrap_or_default();
    let mut properties = JsonObject::new();
    for argument in arguments {
        let mut property = json!({});
        if let Some(description) = &argument.description {
            property["description"] = description.as_str().into();
        }
        properties.insert(argument.name.clone(), property);
    }
    let required: Vec<_> = arguments
        .iter()
        .filter(|argument| argument.required == Some(true))
        .map(|argument| &argument.name)
        .collect();
    Schema::from_json(json!({ "type": "object", "properties": properties, "required": required }))
}
