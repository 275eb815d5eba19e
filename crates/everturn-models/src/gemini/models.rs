//! The models that the provider lists.

use everturn_core::Result;
use serde::Deserialize;

use super::family::is_conversational;
use crate::service::{Call, Service};

/// The most pages of a list that are read; a page has up to a thousand models.
const MAX_PAGES: usize = 10;

/// A model in the provider's list.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed {
    name: String,
    display_name: Option<String>,
    input_token_limit: Option<u64>,
    #[serde(default)]
    supported_generation_methods: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(default)]
    models: Vec<Listed>,
    next_page_token: Option<String>,
}

/// Fetches all models.
///
/// # Errors
/// The error of the service.
pub(super) async fn fetch(service: &Service) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    let mut path = "/v1beta/models?pageSize=1000".to_owned();
    for _ in 0..MAX_PAGES {
        let page: Page = service.json(&Call::get(path)).await?;
        listed.extend(page.models);
        match page.next_page_token.filter(|token| !token.is_empty()) {
            Some(token) => path = format!("/v1beta/models?pageSize=1000&pageToken={token}"),
            None => break,
        }
    }
    Ok(listed)
}

impl Listed {
    /// Returns the name without `models/`.
    pub(super) fn id(&self) -> &str {
        self.name.strip_prefix("models/").unwrap_or(&self.name)
    }

    /// Returns the display name.
    pub(super) fn label(&self) -> Option<&str> {
        self.display_name.as_deref()
    }

    /// Returns the most tokens of a request.
    pub(super) fn max_input_tokens(&self) -> Option<u64> {
        self.input_token_limit
    }

    /// Returns whether it is a chat model.
    pub(super) fn is_model(&self) -> bool {
        self.has("generateContent") && is_conversational(self.id())
    }

    /// Returns whether it is an embedder.
    pub(super) fn is_embedder(&self) -> bool {
        self.has("embedContent") || self.has("batchEmbedContents")
    }

    fn has(&self, method: &str) -> bool {
        self.supported_generation_methods
            .iter()
            .any(|known| known == method)
    }
}
