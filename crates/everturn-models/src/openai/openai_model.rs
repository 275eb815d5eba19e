//! One model behind either protocol.

use everturn_ai::{
    ConstrainedSupport, HttpMediaFetcher, MediaDownload, Model, ModelInfo, ModelRequest, ModelResponse,
    ModelResponseChunk, ModelSupports,
};
use everturn_core::{Context, Emitter, HandlerResult, Schema};

use super::dialect::Dialect;
use super::dialect::max_input_tokens;
use super::{Api, OpenAiConfig, chat, responses};
use crate::{Service, is_image};

/// A model of a server.
#[derive(Debug)]
pub(super) struct OpenAiModel {
    pub(super) service: Service,
    pub(super) id: String,
    pub(super) dialect: Dialect,
    api: Api,
    enforces_schemas: bool,
}

impl OpenAiModel {
    pub(super) fn new(service: Service, id: &str, api: Api, dialect: Dialect) -> Self {
        Self {
            service,
            id: id.to_owned(),
            dialect,
            api,
            enforces_schemas: api == Api::Responses || dialect != Dialect::Generic,
        }
    }

    pub(super) fn enforcing_schemas(self, enforces_schemas: Option<bool>) -> Self {
        Self {
            enforces_schemas: enforces_schemas.unwrap_or(self.enforces_schemas),
            ..self
        }
    }

    #[cfg(test)]
    pub(super) fn api(&self) -> Api {
        self.api
    }
}

impl Model for OpenAiModel {
    fn info(&self) -> ModelInfo {
        let constrained = if self.enforces_schemas {
            ConstrainedSupport::All
        } else {
            ConstrainedSupport::None
        };
        let supports = ModelSupports {
            multiturn: Some(true),
            media: Some(true),
            tools: Some(true),
            tool_choice: Some(true),
            system_role: Some(true),
            constrained: Some(constrained),
            ..ModelSupports::default()
        };
        ModelInfo {
            label: Some(format!("{}/{}", self.service.provider(), self.id)),
            supports: Some(supports),
            max_input_tokens: max_input_tokens(&self.id),
            ..ModelInfo::default()
        }
    }

    fn config_schema(&self) -> Option<Schema> {
        Some(Schema::of::<OpenAiConfig>())
    }

    fn media_download(&self) -> Option<MediaDownload> {
        // Chat Completions accepts images by URL, and any other file only inline.
        (self.api == Api::Chat).then(|| {
            let download = MediaDownload::new(HttpMediaFetcher::default());
            download.filter(|media| media.mime_type().is_some_and(|kind| !is_image(kind)))
        })
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        match self.api {
            Api::Responses => Ok(responses::generate(self, &request, &emitter).await?),
            Api::Chat => Ok(chat::generate(self, &request, &emitter).await?),
        }
    }
}
