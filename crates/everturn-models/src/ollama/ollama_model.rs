//! One model of an Ollama server.

use everturn_ai::{
    ConstrainedSupport, HttpMediaFetcher, JsonObject, MediaDownload, Model, ModelInfo, ModelRequest,
    ModelResponse, ModelResponseChunk, ModelSupports, ToolChoice, ToolDefinition,
};
use everturn_core::{Context, Emitter, HandlerResult, Result, Schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{line_stream, ollama_messages};
use crate::{ApiKey, Call, Draft, Events, Service, Settings, WireTools, is_new, parameters};

/// The longest name of a tool.
const MAX_NAME_CHARS: usize = 64;

#[derive(Debug)]
pub(super) struct OllamaModel {
    service: Service,
    id: String,
}

impl OllamaModel {
    pub(super) fn new(service: Service, id: &str) -> Self {
        Self {
            service,
            id: id.to_owned(),
        }
    }

    /// Warns once if the context window is full, because the server truncates a longer conversation silently.
    fn warn_of_cut(&self, body: &JsonObject, response: &ModelResponse) {
        let room = body
            .get("options")
            .and_then(|options| options.get("num_ctx"))
            .and_then(Value::as_u64);
        let used = response
            .usage
            .as_ref()
            .and_then(|usage| usage.input_tokens)
            .unwrap_or(0);
        // The smallest default context window of servers.
        let is_near = used * 10 >= room.unwrap_or(4096) * 9;
        if is_near && is_new(format!("too long: {}", self.id)) {
            tracing::warn!(
                model = self.id,
                prompt_tokens = used,
                num_ctx = room,
                "the conversation may be longer than the model sees: set `num_ctx` in its configuration"
            );
        }
    }
}

impl Model for OllamaModel {
    fn info(&self) -> ModelInfo {
        let supports = ModelSupports {
            multiturn: Some(true),
            media: Some(true),
            tools: Some(true),
            tool_choice: Some(true),
            system_role: Some(true),
            constrained: Some(ConstrainedSupport::All),
            ..ModelSupports::default()
        };
        ModelInfo {
            label: Some(format!("ollama/{}", self.id)),
            supports: Some(supports),
            ..ModelInfo::default()
        }
    }

    fn config_schema(&self) -> Option<Schema> {
        Some(Schema::of::<OllamaConfig>())
    }

    fn media_download(&self) -> Option<MediaDownload> {
        Some(MediaDownload::new(HttpMediaFetcher::default()))
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let (mut settings, id) = settings(&request, &self.id)?;
        let key = settings.take_key()?;
        let wire_tools = WireTools::new(request.tools(), MAX_NAME_CHARS);
        let mut body = JsonObject::new();
        body.insert("model".to_owned(), id.into());
        body.insert(
            "messages".to_owned(),
            ollama_messages::of(&request, &wire_tools)?.into(),
        );
        body.insert("stream".to_owned(), true.into());
        let mut tools = tools(&request, &wire_tools);
        tools.extend(settings.take_tools()?);
        if !tools.is_empty() {
            body.insert("tools".to_owned(), tools.into());
        }
        if let Some(format) = format(&request) {
            body.insert("format".to_owned(), format);
        }
        add_settings(settings, &mut body);
        let call = Call {
            key,
            ..Call::post("/api/chat", body.clone())
        };
        let answer = self.service.call(&call).await?;
        let lines = Events::json_lines(&self.service, answer);
        let response = line_stream::read(lines, Draft::new(&emitter), &wire_tools).await?;
        self.warn_of_cut(&body, &response);
        Ok(response)
    }
}

/// Returns the tools that the model may call. The API has no tool choice, so tools are omitted to forbid
/// calls.
fn tools(request: &ModelRequest, wire: &WireTools) -> Vec<Value> {
    match request.tool_choice {
        Some(ToolChoice::None) => return Vec::new(),
        Some(ToolChoice::Required) if is_new("Ollama's choice of tools".to_owned()) => {
            tracing::warn!("Ollama cannot be made to call a tool; the model is free not to");
        }
        _ => {}
    }
    let function = |tool: &ToolDefinition| {
        let function = json!({
            "name": wire.to_wire(&tool.name),
            "description": tool.description,
            "parameters": parameters(tool),
        });
        json!({ "type": "function", "function": function })
    };
    request.tools().iter().map(function).collect()
}

fn format(request: &ModelRequest) -> Option<Value> {
    let output = request.output.as_ref()?;
    match &output.schema {
        Some(schema) if output.constrained.unwrap_or(true) => Some(schema.clone()),
        None if output.format.as_deref() == Some("json") => Some(json!("json")),
        _ => None,
    }
}

/// Settings of a request to Ollama. Unlisted settings are sent unchanged as options of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OllamaConfig {
    /// The randomness of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The cumulative probability of the tokens considered at each step.
    #[serde(rename = "topP", skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The number of tokens considered at each step.
    #[serde(rename = "topK", skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// The most tokens that the answer may have.
    #[serde(rename = "maxOutputTokens", skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Texts that end the answer.
    #[serde(rename = "stopSequences", skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// The size of the context window in tokens; the server's default is small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_ctx: Option<u64>,
    /// The seed for reproducible output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Whether the model thinks before it answers: `true`, `false`, or how much, such as `"low"`. A model
    /// without thinking rejects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think: Option<Value>,
    /// How long the model stays loaded after the call: `"5m"`, a number of seconds, `0`, or `-1` for no
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Value>,
    /// An API key for this call, instead of the plugin's.
    #[serde(rename = "apiKey", skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKey>,
    /// Everything else, under the names of Ollama's options.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// Top-level settings, which are not among the options.
const TOP_LEVEL: [(&str, &str); 6] = [
    ("think", "think"),
    ("keep_alive", "keep_alive"),
    ("format", "format"),
    ("logprobs", "logprobs"),
    ("truncate", "truncate"),
    ("shift", "shift"),
];

const OPTIONS: [(&str, &str); 5] = [
    ("temperature", "temperature"),
    ("topP", "top_p"),
    ("topK", "top_k"),
    ("maxOutputTokens", "num_predict"),
    ("stopSequences", "stop"),
];

/// Returns the settings of a request and its model.
///
/// # Errors
/// `INVALID_ARGUMENT` for a reserved setting.
fn settings(request: &ModelRequest, id: &str) -> Result<(Settings, String)> {
    let mut settings = Settings::of(request, &["messages", "stream", "model"])?;
    let model = settings.take_text("version")?.unwrap_or_else(|| id.to_owned());
    Ok((settings, model))
}

/// Moves settings into a body.
fn add_settings(mut settings: Settings, body: &mut JsonObject) {
    settings.move_to(body, &TOP_LEVEL);
    let mut options = JsonObject::new();
    settings.move_to(&mut options, &OPTIONS);
    match settings.take("options") {
        Some(Value::Object(own)) => options.extend(own),
        Some(other) => drop(options.insert("options".to_owned(), other)),
        None => {}
    }
    settings.move_rest_to(&mut options);
    if !options.is_empty() {
        body.insert("options".to_owned(), options.into());
    }
}
