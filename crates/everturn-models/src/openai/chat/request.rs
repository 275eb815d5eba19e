//! From a model request to the body of a Chat Completions request.

use everturn_ai::{JsonObject, ModelRequest};
use everturn_core::Result;
use serde_json::json;

use super::messages;
use crate::openai::dialect::Dialect;
use crate::openai::model::OpenAiModel;
use crate::openai::schema::Wanted;
use crate::openai::{config, schema, tools};
use crate::service::ApiKey;
use crate::wire_tools::WireTools;

pub(super) struct Prepared {
    pub(super) body: JsonObject,
    pub(super) key: Option<ApiKey>,
    pub(super) tools: WireTools,
    pub(super) parses_think_tags: bool,
}

pub(super) fn prepare(model: &OpenAiModel, request: &ModelRequest) -> Result<Prepared> {
    let (mut settings, id) = config::of(request, &model.id)?;
    let key = settings.take_key()?;
    let parses_think_tags = settings.take_flag("parseThinkTags")?.unwrap_or(false);
    config::avoid_refused(&mut settings, model.dialect, &id);
    let wire_tools = tools::of(request);

    let mut body = JsonObject::new();
    body.insert("model".to_owned(), id.into());
    let messages = messages::of(request, model.service.provider(), model.dialect, &wire_tools)?;
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
    match schema::wanted(request) {
        Some(Wanted::Schema(schema)) => {
            let format = json!({ "type": "json_schema", "json_schema": schema });
            body.insert("response_format".to_owned(), format);
        }
        Some(Wanted::Json) => {
            body.insert("response_format".to_owned(), json!({ "type": "json_object" }));
        }
        None => {}
    }
    config::into_chat(settings, model.dialect, &mut body);
    Ok(Prepared {
        body,
        key,
        tools: wire_tools,
        parses_think_tags,
    })
}
