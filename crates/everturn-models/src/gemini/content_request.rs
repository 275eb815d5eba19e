//! A model request as the body of `POST /v1beta/models/{model}:streamGenerateContent`.

use everturn_ai::{JsonObject, ModelRequest, OutputConfig, ToolChoice, ToolDefinition};
use everturn_core::Result;
use serde_json::{Value, json};

use super::contents::Contents;
use super::gemini_family::Family;
use super::open_api::open_api;
use crate::{ApiKey, Settings, WireTools, parameters, snake_case};

/// The longest name of a function.
const MAX_FUNCTION_NAME: usize = 128;
/// Settings that are fields of the request. All others belong to its `generationConfig`.
const REQUEST_FIELDS: [&str; 7] = [
    "safetySettings",
    "cachedContent",
    "labels",
    "serviceTier",
    "store",
    "systemInstruction",
    "continuationToken",
];
/// Tools that Gemini runs itself, by the name of their setting.
const BUILT_IN_TOOLS: [&str; 8] = [
    "googleSearch",
    "googleSearchRetrieval",
    "urlContext",
    "codeExecution",
    "fileSearch",
    "googleMaps",
    "computerUse",
    "mcpServers",
];
/// Settings that are fields of `toolConfig`.
const TOOL_CONFIG_FIELDS: [&str; 3] = [
    "functionCallingConfig",
    "retrievalConfig",
    "includeServerSideToolInvocations",
];

/// A request to `generateContent`.
#[derive(Debug)]
pub(super) struct WireRequest {
    pub(super) model: String,
    pub(super) body: JsonObject,
    /// A key for this call alone.
    pub(super) key: Option<ApiKey>,
    pub(super) tools: WireTools,
}

impl WireRequest {
    /// Converts a request to `model`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for reserved settings, and for files that Gemini does not support.
    pub(super) fn new(model: &str, request: &ModelRequest) -> Result<Self> {
        let mut settings = Settings::of(request, &["contents", "stream", "model"])?;
        let model = settings.take_text("version")?.unwrap_or_else(|| model.to_owned());
        let key = settings.take_key()?;
        let is_legacy = settings.take_flag("legacySchema")?.unwrap_or_default();
        let family = Family::of(&model);
        let wire_tools = WireTools::new(request.tools(), MAX_FUNCTION_NAME);
        let (system, contents) = Contents::of(&request.messages, family, &wire_tools)?.into_wire();
        let mut body = JsonObject::new();
        body.insert("contents".to_owned(), contents.into());
        if !system.is_empty() {
            body.insert("systemInstruction".to_owned(), json!({ "parts": system }));
        }
        let declarations = request
            .tools()
            .iter()
            .map(|tool| declaration(tool, &wire_tools, is_legacy));
        let tools = tools(declarations, &mut settings)?;
        let mut generation = output(request.output.as_ref(), family, tools.is_empty(), is_legacy);
        let tool_config = tool_config(request.tool_choice, !tools.is_empty(), &mut settings);
        insert_filled(&mut body, "tools", tools.into());
        insert_filled(&mut body, "toolConfig", tool_config.into());
        let given = take_either(&mut settings, "generationConfig");
        for name in REQUEST_FIELDS {
            if let Some(value) = take_either(&mut settings, name) {
                body.insert(name.to_owned(), value);
            }
        }
        settings.move_rest_to(&mut generation);
        if let Some(Value::Object(given)) = given {
            generation.extend(given);
        }
        insert_filled(&mut body, "generationConfig", generation.into());
        Ok(Self {
            model,
            body,
            key,
            tools: wire_tools,
        })
    }
}

/// Takes a setting in camel case or in snake case, as the API accepts both.
fn take_either(settings: &mut Settings, name: &str) -> Option<Value> {
    settings.take(name).or_else(|| settings.take(&snake_case(name)))
}

/// Inserts a list or an object, unless it is empty.
fn insert_filled(body: &mut JsonObject, name: &str, value: Value) {
    let is_empty = match &value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    if !is_empty {
        body.insert(name.to_owned(), value);
    }
}

fn declaration(tool: &ToolDefinition, tools: &WireTools, is_legacy: bool) -> Value {
    let mut wire = json!({ "name": tools.to_wire(&tool.name) });
    if !tool.description.is_empty() {
        wire["description"] = json!(tool.description);
    }
    match tool.input_schema.as_ref().and_then(Value::as_object) {
        None => {}
        Some(schema) if schema.is_empty() => {}
        Some(_) if is_legacy => wire["parameters"] = open_api(&parameters(tool)),
        Some(_) => wire["parametersJsonSchema"] = json!(parameters(tool)),
    }
    wire
}

/// Collects the functions of the request, the tools that settings enable, and those given in full in the
/// settings.
fn tools(declarations: impl Iterator<Item = Value>, settings: &mut Settings) -> Result<Vec<Value>> {
    let declarations: Vec<Value> = declarations.collect();
    let mut tools = Vec::new();
    if !declarations.is_empty() {
        tools.push(json!({ "functionDeclarations": declarations }));
    }
    for name in BUILT_IN_TOOLS {
        match take_either(settings, name) {
            None | Some(Value::Bool(false)) => {}
            Some(Value::Bool(true)) => tools.push(json!({ name: {} })),
            Some(value) => tools.push(json!({ name: value })),
        }
    }
    tools.extend(settings.take_tools()?);
    Ok(tools)
}

fn tool_config(choice: Option<ToolChoice>, has_tools: bool, settings: &mut Settings) -> JsonObject {
    let mode = choice.filter(|_| has_tools).map(|choice| match choice {
        ToolChoice::Auto => "AUTO",
        ToolChoice::Required => "ANY",
        ToolChoice::None => "NONE",
    });
    let mut config = JsonObject::new();
    if let Some(mode) = mode {
        config.insert("functionCallingConfig".to_owned(), json!({ "mode": mode }));
    }
    for name in TOOL_CONFIG_FIELDS {
        if let Some(value) = take_either(settings, name) {
            config.insert(name.to_owned(), value);
        }
    }
    if let Some(Value::Object(given)) = take_either(settings, "toolConfig") {
        config.extend(given);
    }
    config
}

/// Requests JSON output, with the schema if it is to be enforced. Early models reject it together with tools.
fn output(
    output: Option<&OutputConfig>,
    family: Family,
    is_without_tools: bool,
    is_legacy: bool,
) -> JsonObject {
    let mut config = JsonObject::new();
    let Some(output) = output else {
        return config;
    };
    let schema = output
        .schema
        .as_ref()
        .filter(|_| output.constrained == Some(true));
    let is_json = schema.is_some()
        || output.format.as_deref() == Some("json")
        || output.content_type.as_deref() == Some("application/json");
    if !is_json || !(is_without_tools || family.has_json_with_tools()) {
        return config;
    }
    config.insert("responseMimeType".to_owned(), json!("application/json"));
    match schema {
        None => {}
        Some(Value::Object(schema)) if is_legacy => {
            config.insert("responseSchema".to_owned(), open_api(schema));
        }
        Some(schema) => {
            config.insert("responseJsonSchema".to_owned(), schema.clone());
        }
    }
    config
}
