//! The Responses API: the whole conversation in each request, nothing stored at the provider.

mod items;
mod output;
mod response_stream;

use everturn_ai::{JsonObject, ModelRequest, ModelResponse, ModelResponseChunk};
use everturn_core::{Emitter, Result};
use serde_json::json;

use self::items::Items;
use super::openai_model::OpenAiModel;
use super::tools::Wanted;
use super::{openai_config, tools};
use crate::{Call, Events};

pub(super) async fn generate(
    model: &OpenAiModel,
    request: &ModelRequest,
    emitter: &Emitter<ModelResponseChunk>,
) -> Result<ModelResponse> {
    let (mut settings, id) = openai_config::of(request, &model.id)?;
    let key = settings.take_key()?;
    openai_config::refuse_stop_sequences(&mut settings)?;
    openai_config::avoid_refused(&mut settings, model.dialect, &id);
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
    let format = tools::wanted(request).map(|wanted| match wanted {
        Wanted::Schema(mut schema) => {
            schema["type"] = json!("json_schema");
            schema
        }
        Wanted::Json => json!({ "type": "json_object" }),
    });
    if let Some(format) = format {
        body.insert("text".to_owned(), json!({ "format": format }));
    }
    openai_config::into_responses(settings, &mut body)?;
    let call = Call {
        key,
        ..Call::post("/responses", body)
    };
    let answer = model.service.call(&call).await?;
    let events = Events::new(&model.service, answer);
    response_stream::read(events, emitter, model.service.provider(), &wire_tools).await
}
