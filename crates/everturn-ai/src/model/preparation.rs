//! The steps that prepare a request for the provider, in the order that [`model`](super) documents.

use everturn_core::{Context, Result, Schema};

use super::config_check::ConfigCheck;
use super::support::without_media;
use super::{
    ContextAugmentation, MediaDownload, OptionalMedia, augment_with_context, needs_simulation,
    simulate_constrained, simulate_system_prompt, validate_support,
};
use crate::{ModelInfo, ModelRequest, ModelStage, ModelSupports};

pub(super) struct Preparation {
    name: String,
    supports: ModelSupports,
    is_deprecated: bool,
    config: ConfigCheck,
    download: Option<MediaDownload>,
}

impl Preparation {
    pub(super) fn new(
        name: &str,
        info: ModelInfo,
        schema: Option<Schema>,
        download: Option<MediaDownload>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            supports: info.supports.unwrap_or_default(),
            is_deprecated: info.stage == Some(ModelStage::Deprecated),
            config: ConfigCheck::new(schema, info.versions),
            download,
        }
    }

    pub(super) async fn prepare(&self, mut request: ModelRequest, context: &Context) -> Result<ModelRequest> {
        if self.is_deprecated {
            tracing::warn!(model = self.name, "the model is deprecated and may be removed");
        }
        request.config = self.config.checked(request.config)?;
        if self.supports.media == Some(false) && context.extension::<OptionalMedia>().is_some() {
            request = without_media(request);
        }
        if let Some(download) = &self.download {
            request = Box::pin(download.apply(request, context)).await?;
        }
        if self.supports.system_role == Some(false) {
            request = simulate_system_prompt(request);
        }
        if self.supports.context != Some(true) {
            request = augment_with_context(request, &ContextAugmentation::default());
        }
        if needs_simulation(&request, self.supports.constrained) {
            request = simulate_constrained(request);
        }
        validate_support(&request, &self.name, &self.supports)?;
        Ok(request)
    }
}
