//! Chat Completions, which nearly every server supports, each with small differences.

mod calls;
mod chat_messages;
mod chat_stream;
mod reasoning;

use everturn_ai::{JsonObject, ModelRequest, ModelResponse, ModelResponseChunk};
use everturn_core::{Emitter, Result};
use serde_json::json;

use super::dialect::Dialect;
use super::openai_model::OpenAiModel;
use super::tools::Wanted;
use super::{openai_config, tools};
use crate::{Call, Draft, Events};

pub(super) async fn generate(
    model: &OpenAiModel,
    request: &ModelRequest,
    emitter: &Emitter<ModelResponseChunk>,
) -> Result<ModelResponse> {
    let (mut settings, id) = openai_config::of(request, &model.id)?;
    let key = settings.take_key()?;
    let parses_think_tags = settings.take_flag("parseThinkTags")?.unwrap_or(false);
    openai_config::avoid_refused(&mut settings, model.dialect, &id);
    let wire_tools = tools::of(request);

    let mut body = JsonObject::new();
    body.insert("model".to_owned(), id.into());
    let messages = chat_messages::of(request, model.service.provider(), model.dialect, &wire_tools)?;
    body.insert("messages".to_owned(), messages.into());
    body.insert("stream".to_owned(), true.into());
    if model.dialect != Dialect::Mistral {
        body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    }
    tools::add(&mut body, request, &mut settings, |tool| {
        let mut function = tools::described(tool, &wire_tools);
        if tools::is_strict(tool) {
            function["strict"] = json!(true);
        }
        json!({ "type": "function", "function": function })
    })?;
    match tools::wanted(request) {
        Some(Wanted::Schema(schema)) => {
            let format = json!({ "type": "json_schema", "json_schema": schema });
            body.insert("response_format".to_owned(), format);
        }
        Some(Wanted::Json) => {
            body.insert("response_format".to_owned(), json!({ "type": "json_object" }));
        }
        None => {}
    }
    openai_config::into_chat(settings, model.dialect, &mut body);
    let call = Call {
        key,
        ..Call::post("/chat/completions", body)
    };
    let answer = model.service.call(&call).await?;
    let events = Events::new(&model.service, answer);
    let reader = chat_stream::Reader::new(Draft::new(emitter), model, &wire_tools, parses_think_tags);
    reader.read(events).await
}
