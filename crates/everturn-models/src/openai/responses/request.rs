//! From a model request to the body of a Responses request.

use everturn_ai::{JsonObject, ModelRequest, ToolDefinition};
use everturn_core::Result;
use serde_json::{Value, json};

use super::items::Items;
use crate::openai::model::OpenAiModel;
use crate::openai::{config, schema};
use crate::service::ApiKey;
use crate::tool_names::ToolNames;

/// How long the name of a tool may be.
const MAX_NAME_CHARS: usize = 64;

pub(super) struct Prepared {
    pub(super) body: JsonObject,
    pub(super) key: Option<ApiKey>,
    pub(super) names: ToolNames,
}

pub(super) fn prepare(model: &OpenAiModel, request: &ModelRequest) -> Result<Prepared> {
    let (mut settings, id) = config::of(request, &model.id)?;
    let key = settings.take_key()?;
    config::avoid_refused(&mut settings, model.dialect, &id);
    let names = ToolNames::new(request.tools(), MAX_NAME_CHARS);

    let mut body = JsonObject::new();
    body.insert("model".to_owned(), id.into());
    let items = Items::of(request, model.service.provider(), &names);
    if let Some(instructions) = items.instructions {
        body.insert("instructions".to_owned(), instructions.into());
    }
    body.insert("input".to_owned(), items.input.into());
    body.insert("stream".to_owned(), true.into());
    body.insert("store".to_owned(), false.into());
    body.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    let mut tools: Vec<Value> = request
        .tools()
        .iter()
        .map(|tool| function(tool, &names))
        .collect();
    tools.extend(settings.take_tools()?);
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.into());
        if let Some(choice) = request.tool_choice {
            body.insert("tool_choice".to_owned(), json!(choice));
        }
    }
    if let Some(format) = format(request) {
        body.insert("text".to_owned(), json!({ "format": format }));
    }
    config::into_responses(settings, &mut body)?;
    Ok(Prepared { body, key, names })
}

fn function(tool: &ToolDefinition, names: &ToolNames) -> Value {
    let is_strict = tool.metadata.as_ref().and_then(|metadata| metadata.get("strict")) == Some(&json!(true));
    let parameters = tool
        .input_schema
        .clone()
        .unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
    json!({
        "type": "function",
        "name": names.to_wire(&tool.name),
        "description": tool.description,
        "parameters": parameters,
        "strict": is_strict,
    })
}

fn format(request: &ModelRequest) -> Option<Value> {
    let output = request.output.as_ref()?;
    let is_constrained = output.constrained.unwrap_or(true);
    match &output.schema {
        Some(wanted) if is_constrained => {
            let strict = schema::strict(wanted);
            Some(json!({
                "type": "json_schema",
                "name": "output",
                "strict": strict.is_some(),
                "schema": strict.as_ref().unwrap_or(wanted),
            }))
        }
        None if output.format.as_deref() == Some("json") => Some(json!({ "type": "json_object" })),
        _ => None,
    }
}
