//! A model request as the body and the headers of `POST /v1/messages`.

use everturn_ai::{JsonObject, ModelRequest, OutputConfig, ToolChoice, ToolDefinition};
use everturn_core::Result;
use serde_json::{Value, json};

use super::blocks::{cache_control, cached};
use super::claude_family::Family;
use super::conversation::Conversation;
use crate::{ApiKey, Settings, WireTools, parameters};

/// The requested version of the API.
pub(super) const VERSION: &str = "2026-10-21";
/// The previous version, the last one that accepts sampling values.
const SAMPLING_VERSION: &str = "2023-06-01";
/// The most breakpoints of the prompt cache in a request.
const CACHE_BREAKPOINTS: usize = 4;
/// The answer's share of the tokens when the caller gives a budget for thinking and no limit.
const TOKENS_BESIDE_THINKING: u64 = 4_096;

/// The common settings whose names differ on the wire.
const COMMON: [(&str, &str); 3] = [
    ("topP", "top_p"),
    ("topK", "top_k"),
    ("stopSequences", "stop_sequences"),
];
const SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];
/// The longest name of a tool.
const MAX_TOOL_NAME: usize = 128;

/// A request to the Messages API.
#[derive(Debug)]
pub(super) struct WireRequest {
    pub(super) body: JsonObject,
    /// For the header `anthropic-version`.
    pub(super) version: String,
    /// For the header `anthropic-beta`, comma-separated.
    pub(super) betas: Option<String>,
    /// A key for this call alone.
    pub(super) key: Option<ApiKey>,
    pub(super) tools: WireTools,
}

impl WireRequest {
    /// Converts a request to `model`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for reserved settings, and for media that Claude does not support.
    pub(super) fn new(model: &str, request: &ModelRequest) -> Result<Self> {
        let mut settings = Settings::of(request, &["messages", "stream", "model"])?;
        let model = settings.take_text("version")?.unwrap_or_else(|| model.to_owned());
        let key = settings.take_key()?;
        let family = Family::of(&model);
        let tools = WireTools::new(request.tools(), MAX_TOOL_NAME);
        let (system, messages) = Conversation::of(&request.messages, family, &tools)?.into_wire();
        let mut body = JsonObject::new();
        body.insert("model".to_owned(), model.into());
        add_thinking(&mut body, &mut settings, family);
        if !system.is_empty() {
            body.insert("system".to_owned(), system.into());
        }
        body.insert("messages".to_owned(), messages.into());
        add_tools(&mut body, request, settings.take_tools()?, &tools);
        add_output(&mut body, &mut settings, request.output.as_ref());
        settings.move_to(&mut body, &COMMON);
        if let Some(mark) = settings.take("cacheControl").as_ref().and_then(cache_control) {
            body.insert("cache_control".to_owned(), mark);
        }
        let version = settings.take_text("anthropicVersion")?;
        let betas = settings.take("betas").as_ref().and_then(betas);
        settings.move_rest_to(&mut body);
        body.insert("stream".to_owned(), json!(true));
        limit_cache_breakpoints(&mut body);
        Ok(Self {
            version: version.unwrap_or_else(|| default_version(&body).to_owned()),
            body,
            betas,
            key,
            tools,
        })
    }
}

/// Adds thinking and the limit on the tokens. The API requires a limit, and one larger than the budget for
/// thinking.
fn add_thinking(body: &mut JsonObject, settings: &mut Settings, family: Family) {
    let thinking = settings.take("thinking").map(thinking);
    let given = settings.take("maxOutputTokens");
    let limit = settings.take("max_tokens").or(given).unwrap_or_else(|| {
        let budget = thinking
            .as_ref()
            .and_then(|thinking| thinking["budget_tokens"].as_u64());
        let least = budget.map_or(0, |budget| budget + TOKENS_BESIDE_THINKING);
        family.default_max_tokens().max(least).into()
    });
    body.insert("max_tokens".to_owned(), limit);
    if let Some(thinking) = thinking {
        body.insert("thinking".to_owned(), thinking);
    }
}

fn add_tools(body: &mut JsonObject, request: &ModelRequest, own: Vec<Value>, wire: &WireTools) {
    let mut tools: Vec<Value> = request.tools().iter().map(|tool| tool_wire(tool, wire)).collect();
    tools.extend(own);
    let choice = match request.tool_choice {
        None => None,
        Some(_) if tools.is_empty() => None,
        Some(ToolChoice::Auto) => Some("auto"),
        Some(ToolChoice::Required) => Some("any"),
        Some(ToolChoice::None) => Some("none"),
    };
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.into());
    }
    if let Some(choice) = choice {
        body.insert("tool_choice".to_owned(), json!({ "type": choice }));
    }
}

fn tool_wire(tool: &ToolDefinition, tools: &WireTools) -> Value {
    let mut wire = json!({ "name": tools.to_wire(&tool.name), "input_schema": parameters(tool) });
    if !tool.description.is_empty() {
        wire["description"] = json!(tool.description);
    }
    let metadata = tool.metadata.as_ref();
    if metadata.and_then(|metadata| metadata.get("strict")) == Some(&json!(true)) {
        wire["strict"] = json!(true);
    }
    let own = metadata.and_then(|metadata| metadata.get(super::PROVIDER)?.as_object());
    for (key, value) in own.into_iter().flatten() {
        wire[key] = value.clone();
    }
    cached(wire, metadata)
}

/// Adds an enforced schema and the effort to the settings of the output.
fn add_output(body: &mut JsonObject, settings: &mut Settings, output: Option<&OutputConfig>) {
    let mut wire = match settings.take("output_config") {
        Some(Value::Object(wire)) => wire,
        _ => JsonObject::new(),
    };
    if let Some(effort) = settings.take("effort") {
        wire.entry("effort").or_insert(effort);
    }
    let schema = output
        .filter(|output| output.constrained == Some(true))
        .and_then(|output| output.schema.as_ref());
    if let Some(schema) = schema {
        wire.entry("format")
            .or_insert_with(|| json!({ "type": "json_schema", "schema": closed(schema.clone()) }));
    }
    if !wire.is_empty() {
        body.insert("output_config".to_owned(), wire.into());
    }
}

/// Forbids additional properties in every object of a schema, as the API requires.
fn closed(mut schema: Value) -> Value {
    close(&mut schema);
    schema
}

fn close(schema: &mut Value) {
    let Value::Object(members) = schema else {
        return;
    };
    let is_object = match members.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.contains(&json!("object")),
        _ => members.contains_key("properties"),
    };
    if is_object {
        members.insert("additionalProperties".to_owned(), json!(false));
    }
    for (key, member) in members.iter_mut() {
        match (key.as_str(), member) {
            ("properties" | "$defs" | "definitions", Value::Object(schemas)) => {
                schemas.values_mut().for_each(close);
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(close);
            }
            ("items" | "not", schema) => close(schema),
            _ => {}
        }
    }
}

/// Returns the version of the API for a request: a sampling value needs the one that still accepts it.
fn default_version(body: &JsonObject) -> &'static str {
    let samples = SAMPLING.iter().any(|name| body.contains_key(*name));
    if samples { SAMPLING_VERSION } else { VERSION }
}

/// Joins the names of beta features by commas.
fn betas(given: &Value) -> Option<String> {
    match given {
        Value::String(beta) => Some(beta.clone()),
        Value::Array(betas) => {
            let betas: Vec<&str> = betas.iter().filter_map(Value::as_str).collect();
            (!betas.is_empty()).then(|| betas.join(","))
        }
        _ => None,
    }
}

/// Converts thinking from Genkit's form `{enabled, budgetTokens, adaptive, display}`; the API's own form
/// stays.
fn thinking(value: Value) -> Value {
    let Value::Object(given) = &value else {
        return value;
    };
    if given.contains_key("type") {
        return value;
    }
    let is_set = |key| given.get(key).and_then(Value::as_bool);
    let mut wire = match (is_set("adaptive"), is_set("enabled"), given.get("budgetTokens")) {
        (Some(true), _, _) | (_, Some(true), None) => json!({ "type": "adaptive" }),
        (_, Some(false), _) => json!({ "type": "disabled" }),
        (_, _, Some(budget)) => json!({ "type": "enabled", "budget_tokens": budget }),
        _ => return value,
    };
    if let Some(display) = given.get("display") {
        wire["display"] = display.clone();
    }
    wire
}

/// Removes the earliest cache breakpoints of messages if there are more than the API accepts. A later
/// breakpoint covers earlier ones, so a conversation with one in every message works.
fn limit_cache_breakpoints(body: &mut JsonObject) {
    let count = |list: Option<&Value>| {
        let blocks = list.and_then(Value::as_array).into_iter().flatten();
        blocks
            .filter(|block| block.get("cache_control").is_some())
            .count()
    };
    let fixed = count(body.get("system"))
        + count(body.get("tools"))
        + usize::from(body.contains_key("cache_control"));
    let Some(Value::Array(messages)) = body.get_mut("messages") else {
        return;
    };
    let marked: usize = messages.iter().map(|message| count(message.get("content"))).sum();
    let mut excess = (fixed + marked).saturating_sub(CACHE_BREAKPOINTS).min(marked);
    let blocks = messages
        .iter_mut()
        .filter_map(|message| message["content"].as_array_mut())
        .flatten();
    for block in blocks {
        if excess == 0 {
            break;
        }
        if let Some(block) = block.as_object_mut()
            && block.shift_remove("cache_control").is_some()
        {
            excess -= 1;
        }
    }
}
