//! An agent that returns the request of its model.

use everturn_agent::ClientPermissions;
use everturn_ai::{
    Message, Model, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk, ModelSupports, Part, Role,
    register_model,
};
use everturn_core::{Context, Emitter, HandlerResult, Result};

use super::prompted::SYSTEM;
use crate::Harness;

const MODEL: &str = "askedWith";

/// The maximum length of a printed URL.
const URL: usize = 40;

pub(super) fn define(harness: &mut Harness) -> Result<()> {
    let (registry, store) = (&harness.registry().clone(), harness.store());
    register_model(registry, MODEL, AskedWith)?;
    let echo = everturn_agent::agent(registry, "echoAgent")
        .model(MODEL)
        .system(SYSTEM)
        .client_permissions(ClientPermissions::none().instructions());
    harness.define(echo.store(store))
}

/// A model whose answer lists the messages and tools of its request, streamed in two halves.
struct AskedWith;

impl Model for AskedWith {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            supports: Some(ModelSupports {
                media: Some(true),
                tools: Some(true),
                multiturn: Some(true),
                system_role: Some(true),
                ..ModelSupports::default()
            }),
            ..ModelInfo::default()
        }
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let text = summary_of(&request);
        let middle = text
            .char_indices()
            .nth(text.chars().count() / 2)
            .map_or(0, |(at, _)| at);
        let (first, second) = text.split_at(middle);
        emitter.send(first.into()).await?;
        emitter.send(second.into()).await?;
        Ok(ModelResponse::text_of(text))
    }
}

fn summary_of(request: &ModelRequest) -> String {
    let messages: Vec<String> = request.messages.iter().map(line).collect();
    let tools: Vec<&str> = request
        .tools
        .iter()
        .flat_map(|tools| tools.iter())
        .map(|tool| tool.name.as_str())
        .collect();
    let offered = if tools.is_empty() {
        String::new()
    } else {
        format!(" ; tools: {}", tools.join(","))
    };
    format!("{}{offered}", messages.join(" | "))
}

fn line(message: &Message) -> String {
    let parts: String = message.content().iter().map(part).collect();
    let role = match message.role() {
        Role::System => "system",
        Role::User => "user",
        Role::Model => "model",
        Role::Tool => "tool",
    };
    format!("{role}:{parts}")
}

fn part(part: &Part) -> String {
    if let Some(request) = part.as_tool_request() {
        return format!("[call {}]", request.name);
    }
    if let Some(response) = part.as_tool_response() {
        let output = response.output.clone().unwrap_or_default();
        return format!("[result {} {output}]", response.name);
    }
    if let Some(media) = part.as_media() {
        let url: String = media.url.chars().take(URL).collect();
        return format!("[media {} {url}]", media.mime_type().unwrap_or("unknown"));
    }
    part.as_text().unwrap_or_default().to_owned()
}
