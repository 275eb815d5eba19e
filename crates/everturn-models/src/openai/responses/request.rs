//! From a model request to the body of a Responses request.

use everturn_ai::{JsonObject, ModelRequest};
use everturn_core::Result;
use serde_json::json;

use super::items::Items;
use crate::openai::model::OpenAiModel;
use crate::openai::schema::Wanted;
use crate::openai::{config, schema, tools};
use crate::service::ApiKey;
use crate::wire_tools::WireTools;

pub(super) struct Prepared {
    pub(super) body: JsonObject,
    pub(super) key: Option<ApiKey>,
    pub(super) tools: WireTools,
}

pub(super) fn prepare(model: &OpenAiModel, request: &ModelRequest) -> Result<Prepared> {
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
    Ok(Prepared {
        body,
        key,
        tools: wire_tools,
    })
}
