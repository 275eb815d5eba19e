//! The wrappers of model actions as middleware, for models that declare wrong capabilities, and for other
//! wordings or limits than the default ones.

use async_trait::async_trait;
use everturn_core::{ActionType, HandlerResult, Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

#[cfg(feature = "download")]
pub(super) use self::http::HttpDownload;
use crate::{
    Citation, ContextAugmentation, MediaDownload, MediaFetcher, Middleware, ModelCall, ModelResponse,
    ModelSupports, NextModel, SystemPromptWording, augment_with_context, needs_simulation,
    simulate_constrained, simulate_system_prompt_with, validate_support,
};

/// Rejects requests that need a feature the model declares unsupported. Undeclared features are assumed to
/// work.
///
/// Models made by [`model_action`](crate::model_action) reject these requests themselves. The middleware is
/// for models that plugins implement directly, and for stricter rules than a model's own:
/// `ValidateSupport::new(supports)` replaces the model's declaration.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ValidateSupport {
    /// The model's name in error messages; the model's own if not given.
    name: Option<String>,
    /// The supported features; the model's declaration if not given.
    supports: Option<ModelSupports>,
}

impl ValidateSupport {
    /// Checks against `supports` instead of the model's declaration.
    pub fn new(supports: ModelSupports) -> Self {
        Self {
            supports: Some(supports),
            ..Self::default()
        }
    }

    async fn supports(&self, registry: &Registry, model: &str) -> Result<ModelSupports> {
        if let Some(supports) = &self.supports {
            return Ok(supports.clone());
        }
        let key = if model.starts_with('/') {
            model.to_owned()
        } else {
            ActionType::MODEL.key(model)
        };
        let action = registry.lookup(&key).await?;
        let declared = action
            .as_ref()
            .and_then(|action| action.descriptor().metadata.get("model")?.get("supports"));
        Ok(declared
            .and_then(|declared| ModelSupports::deserialize(declared).ok())
            .unwrap_or_default())
    }
}

#[async_trait]
impl Middleware for ValidateSupport {
    async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        let supports = self.supports(&call.registry, &call.model).await?;
        validate_support(
            &call.request,
            self.name.as_deref().unwrap_or(&call.model),
            &supports,
        )?;
        Ok(next.run(call).await?)
    }
}

/// Writes an enforced output schema into the prompt and removes it from the request.
///
/// Models that do not declare support for schemas get this anyway; the middleware is for models that enforce
/// them badly.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimulateConstrained {}

#[async_trait]
impl Middleware for SimulateConstrained {
    async fn model(&self, mut call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        if needs_simulation(&call.request, None) {
            call.request = simulate_constrained(call.request);
        }
        Ok(next.run(call).await?)
    }
}

/// Turns the first system message into a user message and a model message that acknowledges it.
///
/// Models that declare no system role get this anyway; the middleware is for models that declare one and
/// ignore it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SimulateSystemPrompt {
    /// The beginning of the user message with the instructions.
    preface: Option<String>,
    /// The model's acknowledgement.
    acknowledgement: Option<String>,
}

impl SimulateSystemPrompt {
    everturn_core::setters! {
        /// Sets the beginning of the user message with the instructions.
        pub fn preface(mut self, preface: impl Into<String>) { self.preface = Some(preface.into()) }

        /// Sets the model's acknowledgement.
        pub fn acknowledgement(mut self, acknowledgement: impl Into<String>) {
            self.acknowledgement = Some(acknowledgement.into());
        }
    }

    fn wording(&self) -> SystemPromptWording {
        let usual = SystemPromptWording::default();
        SystemPromptWording {
            preface: self.preface.clone().unwrap_or(usual.preface),
            acknowledgement: self.acknowledgement.clone().unwrap_or(usual.acknowledgement),
        }
    }
}

#[async_trait]
impl Middleware for SimulateSystemPrompt {
    async fn model(&self, mut call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        call.request = simulate_system_prompt_with(call.request, &self.wording());
        Ok(next.run(call).await?)
    }
}

/// Adds the request's documents as text to the last user message.
///
/// Models that do not declare support for documents get this anyway; the middleware is for another wording.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AugmentWithContext {
    /// The text before the documents.
    preface: Option<String>,
    /// The metadata entry by which a document is named; `null` leaves documents unnamed.
    #[serde(rename = "citationKey", deserialize_with = "citation")]
    #[schemars(with = "Option<String>")]
    citation: Citation,
}

impl AugmentWithContext {
    everturn_core::setters! {
        /// Sets the text before the documents.
        pub fn preface(mut self, preface: impl Into<String>) { self.preface = Some(preface.into()) }

        /// Sets how a document is named.
        pub fn citation(mut self, citation: Citation) { self.citation = citation }
    }

    fn options(&self) -> ContextAugmentation {
        let usual = ContextAugmentation::default();
        ContextAugmentation {
            preface: self.preface.clone().unwrap_or(usual.preface),
            citation: self.citation.clone(),
        }
    }
}

/// Reads the citation of a key that is present: an absent key is the default, `null` means no citation.
fn citation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Citation, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map_or(Citation::None, Citation::Key))
}

#[async_trait]
impl Middleware for AugmentWithContext {
    async fn model(&self, mut call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        call.request = augment_with_context(call.request, &self.options());
        Ok(next.run(call).await?)
    }
}

/// Downloads media behind `http` URLs and passes it to the model inline.
///
/// Media over the limit fails the call, because truncated media is worse than none. [`MediaDownload::apply`]
/// documents which URLs are downloaded: those of a conversation with a client only if the agent allows it.
#[derive(Debug, Clone)]
pub struct DownloadMedia(MediaDownload);

impl DownloadMedia {
    /// Creates middleware that fetches with `fetcher`, up to the default size.
    pub fn new(fetcher: impl MediaFetcher) -> Self {
        Self(MediaDownload::new(fetcher))
    }
}

/// Takes all the settings of a download.
impl From<MediaDownload> for DownloadMedia {
    fn from(download: MediaDownload) -> Self {
        Self(download)
    }
}

#[async_trait]
impl Middleware for DownloadMedia {
    async fn model(&self, mut call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        call.request = call
            .context
            .guard(self.0.apply(call.request, &call.context))
            .await?;
        Ok(next.run(call).await?)
    }
}

#[cfg(feature = "download")]
mod http {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::DownloadMedia;
    use crate::{HttpMediaFetcher, MediaDownload};

    /// The configuration of the middleware when it is used by name.
    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
    pub(in crate::builtin_middleware) struct HttpDownload {
        /// The largest download, in bytes.
        max_bytes: Option<usize>,
    }

    impl From<HttpDownload> for DownloadMedia {
        fn from(config: HttpDownload) -> Self {
            let download = MediaDownload::new(HttpMediaFetcher::default());
            match config.max_bytes {
                Some(max_bytes) => download.max_bytes(max_bytes).into(),
                None => download.into(),
            }
        }
    }
}
