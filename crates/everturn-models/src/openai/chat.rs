//! Chat Completions, which nearly every server supports, each with small differences.

mod calls;
mod details;
mod messages;
mod request;
mod stream;
mod think_tags;

use everturn_ai::{ModelRequest, ModelResponse, ModelResponseChunk};
use everturn_core::{Emitter, Result};

use super::model::OpenAiModel;
use crate::draft::Draft;
use crate::event_stream::Events;
use crate::service::Call;

pub(super) async fn generate(
    model: &OpenAiModel,
    request: &ModelRequest,
    emitter: &Emitter<ModelResponseChunk>,
) -> Result<ModelResponse> {
    let prepared = request::prepare(model, request)?;
    let call = Call {
        key: prepared.key,
        ..Call::post("/chat/completions", prepared.body)
    };
    let body = model.service.call(&call).await?;
    let events = Events::new(&model.service, body);
    let reader = stream::Reader::new(
        Draft::new(emitter),
        model,
        &prepared.tools,
        prepared.parses_think_tags,
    );
    reader.read(events).await
}
