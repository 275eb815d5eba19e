//! Documents, written into the conversation.

use async_trait::async_trait;
use everturn_core::{HandlerResult, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::{
    Citation, ContextAugmentation, Middleware, ModelCall, ModelResponse, NextModel, augment_with_context,
};

/// Adds the request's documents as text to the last user message.
///
/// Models that do not declare to take documents get this anyway; the middleware is for other words around them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AugmentWithContext {
    /// What stands before the documents.
    preface: Option<String>,
    /// The metadata entry by which a document is named; `null` leaves documents unnamed.
    #[serde(rename = "citationKey", deserialize_with = "citation")]
    #[schemars(with = "Option<String>")]
    citation: Citation,
}

impl AugmentWithContext {
    /// What stands before the documents.
    pub fn preface(self, preface: impl Into<String>) -> Self {
        Self {
            preface: Some(preface.into()),
            ..self
        }
    }

    /// How a document is named.
    pub fn citation(self, citation: Citation) -> Self {
        Self { citation, ..self }
    }

    fn options(&self) -> ContextAugmentation {
        let usual = ContextAugmentation::default();
        ContextAugmentation {
            preface: self.preface.clone().unwrap_or(usual.preface),
            citation: self.citation.clone(),
        }
    }
}

/// Only called for a key that is there: an absent one is the default, `null` means no citation.
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
