//! One model of the provider.

use everturn_ai::{Model, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk};
use everturn_core::{Context, Emitter, HandlerResult, Result, Schema, Status};
use serde_json::Value;

use super::config::GeminiConfig;
use super::family::Family;
use super::request::WireRequest;
use super::stream::Assembly;
use super::{Listed, method_path};
use crate::event_stream::Events;
use crate::service::{Call, Service};

/// The number of times that an answer is continued.
const MAX_CONTINUATIONS: usize = 5;

/// A model behind `generateContent`.
#[derive(Debug)]
pub(super) struct GeminiModel {
    service: Service,
    name: String,
    info: ModelInfo,
}

impl GeminiModel {
    /// Creates the model of that name; `listed` is its entry in the provider's list.
    pub(super) fn new(service: Service, name: &str, listed: Option<&Listed>) -> Self {
        let label = listed.and_then(Listed::label).unwrap_or(name);
        Self {
            service,
            name: name.to_owned(),
            info: ModelInfo {
                label: Some(label.to_owned()),
                supports: Some(Family::of(name).supports()),
                max_input_tokens: listed
                    .and_then(Listed::max_input_tokens)
                    .or_else(|| Some(Family::of(name).max_input_tokens())),
                ..ModelInfo::default()
            },
        }
    }

    /// Streams an answer, or the continuation of one.
    async fn stream(
        &self,
        call: &Call<'_>,
        assembly: &mut Assembly<'_>,
        emitter: &Emitter<ModelResponseChunk>,
    ) -> Result<()> {
        let body = self.service.call(call).await?;
        let mut events = Events::new(&self.service, body);
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                // A connection that breaks after the end of the answer loses nothing.
                _ if assembly.is_complete() => return Ok(()),
                // Gemini sends an empty stream when it is overloaded.
                Ok(None) if events.is_blank() => {
                    return Err(events.broken(Status::Unavailable, "the stream was empty"));
                }
                Ok(None) => return Err(events.truncated("the reason why it finished")),
                Err(error) => return Err(error),
            };
            let event: Value = events.read(&event)?;
            if event.get("error").is_some_and(|error| !error.is_null()) {
                return Err(events.failure(&event));
            }
            let parts = assembly.event(event);
            if !parts.is_empty() {
                emitter.send(ModelResponseChunk::new(parts)).await?;
            }
        }
    }
}

impl Model for GeminiModel {
    fn info(&self) -> ModelInfo {
        self.info.clone()
    }

    fn config_schema(&self) -> Option<Schema> {
        Some(Schema::of::<GeminiConfig>())
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let wire = WireRequest::new(&self.name, &request)?;
        let mut call = Call {
            path: format!("{}?alt=sse", method_path(&wire.model, "streamGenerateContent")).into(),
            body: Some(Value::Object(wire.body)),
            key: wire.key,
            ..Call::default()
        };
        let mut assembly = Assembly::new(&wire.tools);
        self.stream(&call, &mut assembly, &emitter).await?;
        for _ in 0..MAX_CONTINUATIONS {
            let Some(token) = assembly.continuation() else {
                break;
            };
            if let Some(body) = call.body.as_mut() {
                body["continuationToken"] = token;
            }
            assembly.resume();
            self.stream(&call, &mut assembly, &emitter).await?;
        }
        Ok(assembly.answer())
    }
}
