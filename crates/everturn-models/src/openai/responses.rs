//! The Responses API: the whole conversation in each request, nothing stored at the provider.

mod items;
mod output;
mod request;
mod stream;

use everturn_ai::{ModelRequest, ModelResponse, ModelResponseChunk};
use everturn_core::{Emitter, Result};

use super::model::OpenAiModel;
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
        ..Call::post("/responses", prepared.body)
    };
    let body = model.service.call(&call).await?;
    let events = Events::new(&model.service, body);
    stream::read(events, emitter, model.service.provider(), &prepared.tools).await
}
