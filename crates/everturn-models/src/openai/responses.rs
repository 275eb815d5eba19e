//! The Responses API: the whole conversation in each request, nothing stored at the provider.

mod items;
mod output;
mod stream;

use everturn_ai::{JsonObject, ModelRequest, ModelResponse, ModelResponseChunk};
use everturn_core::{Emitter, Result};
use serde_json::json;

use self::items::Items;
use super::model::OpenAiModel;
use super::schema::Wanted;
use super::{config, schema, tools};
use crate::event_stream::Events;
use crate::service::Call;

pub(super) async fn generate(
    model: &OpenAiModel,
    request: &ModelRequest,
    emitter: &Emitter<ModelResponseChunk>,
) -> Result<ModelResponse> {
    let (mut settings, id) = config::of(request, &model.id)?;
    let key = settings.take_key()?;
    config::refuse_stop_sequences(&mut settings)?;
    config::avoid_refused(&mut settings, model.dialect, &id);
    let wire_tools = tools::of(request);

    let mut body = JsonObject::new();
    body.insert("model".to_owned(), id.into());
    let items = Items::of(request, model.service.provider(), &wire_tools);
    if let Some(instructions) = items.instructions {
        body.insert("instructions".to_owned(), instructions.into());
    }
    body.insert("input".to_owned(), items.input.into());
    body.insert("stream".to_owned(), true.into());
    body.insert("store".to_owned(), false.into());
    body.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    tools::add(&mut body, request, &mut settings, |tool| {
        let mut function = tools::described(tool, &wire_tools);
        function["type"] = json!("function");
        function["strict"] = json!(tools::is_strict(tool));
        function
    })?;
    let format = schema::wanted(request).map(|wanted| match wanted {
        Wanted::Schema(mut schema) => {
            schema["type"] = json!("json_schema");
            schema
        }
        Wanted::Json => json!({ "type": "json_object" }),
    });
    if let Some(format) = format {
        body.insert("text".to_owned(), json!({ "format": format }));
    }
    config::into_responses(settings, &mut body)?;
    let call = Call {
        key,
        ..Call::post("/responses", body)
    };
    let answer = model.service.call(&call).await?;
    let events = Events::new(&model.service, answer);
    stream::read(events, emitter, model.service.provider(), &wire_tools).await
}
