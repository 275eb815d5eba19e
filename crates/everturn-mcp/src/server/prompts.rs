//! Prompts: listed with their arguments, rendered to messages.

use std::sync::Arc;

use everturn_ai::{JsonObject, ModelRequest};
use everturn_core::{ActionType, Descriptor, DynAction, Error, JsonCall, Result, Schema};
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, Prompt, PromptArgument, Reference,
};
use serde_json::Value;

use super::Exposed;
use super::session::Request;
use crate::content;

/// Returns the exposed prompts.
pub(super) fn list(exposed: &Exposed) -> Vec<Prompt> {
    let prompts = exposed.of_type(&ActionType::PROMPT).into_iter();
    let prompts = prompts.filter(|descriptor| !is_an_agents(exposed, &descriptor.name));
    prompts.map(|descriptor| described(&descriptor)).collect()
}

/// Returns whether a prompt belongs to an agent; such prompts are private.
fn is_an_agents(exposed: &Exposed, name: &str) -> bool {
    exposed.registry.get(&ActionType::AGENT.key(name)).is_some()
}

/// Returns the exposed prompt of that name.
async fn find(request: &Request<'_>, name: &str) -> Result<Option<Arc<dyn DynAction>>> {
    let found = request.exposed.action(&ActionType::PROMPT.key(name)).await?;
    Ok(found.filter(|_| !is_an_agents(request.exposed, name)))
}

fn described(descriptor: &Descriptor) -> Prompt {
    let arguments = arguments(descriptor);
    Prompt::new(
        descriptor.name.as_str(),
        descriptor.description.clone(),
        (!arguments.is_empty()).then_some(arguments),
    )
}

fn properties(descriptor: &Descriptor) -> Option<&JsonObject> {
    let schema = descriptor.input_schema.as_ref().map(Schema::as_json)?;
    schema.get("properties")?.as_object()
}

fn arguments(descriptor: &Descriptor) -> Vec<PromptArgument> {
    let schema = descriptor.input_schema.as_ref().map(Schema::as_json);
    let required = schema.and_then(|schema| schema.get("required")?.as_array());
    let argument = |(name, property): (&String, &Value)| {
        let is_required =
            required.is_some_and(|names| names.iter().any(|required| required == name.as_str()));
        let argument = PromptArgument::new(name.as_str()).with_required(is_required);
        match property.get("description").and_then(Value::as_str) {
            Some(description) => argument.with_description(description),
            None => argument,
        }
    };
    let properties = properties(descriptor);
    properties.into_iter().flatten().map(argument).collect()
}

/// Renders a prompt.
pub(super) async fn get(request: &Request<'_>, params: GetPromptRequestParams) -> Result<GetPromptResponse> {
    let missing = || Error::not_found(format!("there is no prompt '{}'", params.name)).with_public();
    let action = find(request, &params.name).await?.ok_or_else(missing)?;
    let input = typed(action.descriptor(), params.arguments.unwrap_or_default());
    let call = JsonCall {
        context: request.context.clone(),
        ..JsonCall::new(input)
    };
    let rendered: ModelRequest = serde_json::from_value(action.run_json(call).await?)?;
    let messages = rendered.messages.iter().flat_map(content::prompt_messages);
    let mut result = GetPromptResult::new(messages.collect());
    result.description.clone_from(&action.descriptor().description);
    Ok(result.into())
}

/// Parses arguments, which are texts, as numbers and booleans where the prompt's schema requires it.
fn typed(descriptor: &Descriptor, arguments: JsonObject) -> Value {
    let properties = properties(descriptor);
    let read = |name: &str, value: Value| {
        let kind = properties.and_then(|properties| properties.get(name)?.get("type")?.as_str());
        match (&value, kind) {
            (Value::String(text), Some("integer" | "number" | "boolean" | "array" | "object")) => {
                serde_json::from_str(text).unwrap_or(value)
            }
            _ => value,
        }
    };
    let typed = arguments
        .into_iter()
        .map(|(name, value)| (name.clone(), read(&name, value)));
    Value::Object(typed.collect())
}

/// Returns the possible values of an argument that start with the typed text.
pub(super) async fn complete(request: &Request<'_>, params: CompleteRequestParams) -> Result<CompleteResult> {
    let Reference::Prompt(prompt) = &params.r#ref else {
        return Ok(CompleteResult::default());
    };
    let action = find(request, &prompt.name).await?;
    let values = action.as_ref().and_then(|action| {
        let property = properties(action.descriptor())?.get(&params.argument.name)?;
        property.get("enum")?.as_array()
    });
    let typed = params.argument.value.as_str();
    let fitting = values.into_iter().flatten().filter_map(Value::as_str);
    let fitting = fitting
        .filter(|value| value.starts_with(typed))
        .map(str::to_owned);
    let fitting: Vec<_> = fitting.take(CompletionInfo::MAX_VALUES).collect();
    let completion = CompletionInfo::new(fitting).map_err(Error::internal)?;
    Ok(CompleteResult::new(completion))
}
