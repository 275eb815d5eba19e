//! The models that the provider lists.

use everturn_ai::{ConstrainedSupport, ModelInfo, ModelStage, ModelSupports};
use everturn_core::Result;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::Value;

use super::request::VERSION;
use crate::service::{Call, Service};

/// The most pages of a list that are read; a page has up to a thousand models.
const MAX_PAGES: usize = 10;

/// A model in the provider's list.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Listed {
    pub(super) id: String,
    display_name: Option<String>,
    max_input_tokens: Option<u64>,
    #[serde(default)]
    lifecycle: Value,
    #[serde(default)]
    capabilities: Value,
}

#[derive(Debug, Deserialize)]
struct Page {
    data: Vec<Listed>,
    #[serde(default)]
    has_more: bool,
    last_id: Option<String>,
}

/// Fetches all models.
///
/// # Errors
/// The error of the service.
pub(super) async fn fetch(service: &Service) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    let mut path = "/v1/models?limit=1000".to_owned();
    for _ in 0..MAX_PAGES {
        let mut call = Call::get(path);
        call.headers = HeaderMap::from_iter([(
            reqwest::header::HeaderName::from_static("anthropic-version"),
            HeaderValue::from_static(VERSION),
        )]);
        let page: Page = service.json(&call).await?;
        listed.extend(page.data);
        match page.last_id.filter(|_| page.has_more) {
            Some(last) => path = format!("/v1/models?limit=1000&after_id={last}"),
            None => break,
        }
    }
    Ok(listed)
}

impl Listed {
    /// Updates the description of a model from the provider's list.
    pub(super) fn refine(&self, info: ModelInfo) -> ModelInfo {
        let supports = info.supports.unwrap_or_default();
        let media = match (self.has("image_input"), self.has("pdf_input")) {
            (None, None) => supports.media,
            (image, pdf) => Some(image == Some(true) || pdf == Some(true)),
        };
        let constrained = match self.has("structured_outputs") {
            None => supports.constrained,
            Some(true) => Some(ConstrainedSupport::All),
            Some(false) => Some(ConstrainedSupport::None),
        };
        ModelInfo {
            label: self.display_name.clone().or(info.label),
            supports: Some(ModelSupports {
                media,
                constrained,
                ..supports
            }),
            stage: self.stage().or(info.stage),
            max_input_tokens: self.max_input_tokens.or(info.max_input_tokens),
            ..info
        }
    }

    /// Returns whether the model has a capability; `None` if the provider does not declare it.
    fn has(&self, capability: &str) -> Option<bool> {
        match self.capabilities.get(capability)? {
            Value::Bool(has) => Some(*has),
            Value::Object(details) => details.get("supported").and_then(Value::as_bool),
            _ => None,
        }
    }

    fn stage(&self) -> Option<ModelStage> {
        let stage = match &self.lifecycle {
            Value::String(stage) => stage.as_str(),
            Value::Object(details) => ["stage", "status", "state"]
                .iter()
                .find_map(|key| details.get(*key)?.as_str())?,
            _ => return None,
        };
        match stage {
            "active" | "stable" => Some(ModelStage::Stable),
            "legacy" => Some(ModelStage::Legacy),
            "deprecated" | "retired" => Some(ModelStage::Deprecated),
            "preview" | "beta" => Some(ModelStage::Unstable),
            _ => None,
        }
    }
}
