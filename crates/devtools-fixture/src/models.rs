//! Models with deterministic answers.

use everturn::ai::Model;
use everturn::ai::{ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk, ModelSupports, ToolRequest};
use everturn::prelude::*;

/// A model that repeats the last message, streamed word by word. If the message mentions the weather and
/// tools are available, it calls one.
pub(crate) struct Echo;

impl Model for Echo {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            label: Some("Fake Echo".to_owned()),
            supports: Some(ModelSupports {
                multiturn: Some(true),
                tools: Some(true),
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
        let last = request.messages.iter().next_back();
        let answered = last.and_then(|message| message.content().iter().find_map(Part::as_tool_response));
        if let Some(answer) = answered {
            let output = answer.output.clone().unwrap_or_default();
            return Ok(answer_with(format!("tool said: {output}")));
        }
        let text = last
            .map(|message| message.text().into_owned())
            .unwrap_or_default();
        if text.contains("weather") && request.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
            let mut call = ToolRequest::new("getWeather", json!({ "city": "Paris" }));
            call.reference = Some("call-1".to_owned());
            return Ok(answer_with(vec![Part::tool_request(call)]));
        }
        let answer = format!("echo: {text}");
        for word in answer.split_inclusive(' ') {
            emitter
                .send(ModelResponseChunk {
                    role: Some(Role::Model),
                    index: Some(0),
                    ..ModelResponseChunk::new(word)
                })
                .await?;
        }
        Ok(answer_with(answer))
    }
}

/// A model that answers with the first message of its request, as JSON.
pub(crate) struct Reflector;

impl Model for Reflector {
    async fn generate(
        &self,
        request: ModelRequest,
        _emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let first = request.messages.iter().next();
        let shown = first.map(|message| json!({ "content": message.content(), "role": message.role() }));
        Ok(answer_with(json!({ "messages": [shown] }).to_string()))
    }
}

fn answer_with(content: impl Into<everturn::ai::Content>) -> ModelResponse {
    let mut response = ModelResponse::new(Message::model(content));
    response.finish_reason = Some(FinishReason::Stop);
    response
}
