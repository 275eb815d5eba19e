//! One model of an Ollama server.

use everturn_ai::{
    ConstrainedSupport, HttpMediaFetcher, JsonObject, MediaDownload, Model, ModelInfo, ModelRequest,
    ModelResponse, ModelResponseChunk, ModelSupports, ToolChoice, ToolDefinition,
};
use everturn_core::{Context, Emitter, HandlerResult, Schema};
use serde_json::{Value, json};

use super::{OllamaConfig, config, messages, stream};
use crate::content::is_new;
use crate::draft::Draft;
use crate::json_lines::JsonLines;
use crate::service::{Call, Service};
use crate::wire_tools::{WireTools, parameters};

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
        let (mut settings, id) = config::of(&request, &self.id)?;
        let key = settings.take_key()?;
        let wire_tools = WireTools::new(request.tools(), MAX_NAME_CHARS);
        let mut body = JsonObject::new();
        body.insert("model".to_owned(), id.into());
        body.insert("messages".to_owned(), messages::of(&request, &wire_tools)?.into());
        body.insert("stream".to_owned(), true.into());
        let mut tools = tools(&request, &wire_tools);
        tools.extend(settings.take_tools()?);
        if !tools.is_empty() {
            body.insert("tools".to_owned(), tools.into());
        }
        if let Some(format) = format(&request) {
            body.insert("format".to_owned(), format);
        }
        config::into_body(settings, &mut body);
        let call = Call {
            key,
            ..Call::post("/api/chat", body.clone())
        };
        let answer = self.service.call(&call).await?;
        let lines = JsonLines::new(&self.service, answer);
        let response = stream::read(lines, Draft::new(&emitter), &wire_tools).await?;
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
