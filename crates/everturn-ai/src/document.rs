//! Documents: content to be embedded, retrieved, or given to a model as context.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::{Content, JsonObject, Message, Part, PartKind};

/// A document of text and media parts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DocumentData")]
pub struct Document {
    /// The parts; only text and media.
    #[serde(deserialize_with = "text_and_media")]
    pub content: Vec<Part>,
    /// Metadata of the document, for instance its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

impl Document {
    /// Creates a document with this content; parts other than text and media are dropped.
    pub fn new(content: impl Into<Content>) -> Self {
        let mut content = content.into().into_parts();
        content.retain(belongs_in_document);
        Self {
            content,
            metadata: None,
        }
    }

    everturn_core::setters! {
        /// Returns this document with this metadata.
        pub fn with_metadata(mut self, metadata: JsonObject) { self.metadata = Some(metadata) }
    }

    /// Returns the text of all text parts, joined.
    pub fn text(&self) -> Cow<'_, str> {
        crate::message::joined(self.content.iter().filter_map(Part::as_text))
    }
}

everturn_core::conversions! {
    From<&str> for Document: |text| Self::new(text);
    From<String> for Document: |text| Self::new(text);
    From<&Message> for Document: |message| Self::new(message.content());
}

fn belongs_in_document(part: &Part) -> bool {
    matches!(part.kind(), PartKind::Text(_) | PartKind::Media(_))
}

/// Reads document parts; fails for any other kind of part.
pub(crate) fn text_and_media<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Part>, D::Error> {
    let content = Vec::<Part>::deserialize(deserializer)?;
    if content
        .iter()
        .all(|part| part.as_text().is_some() || belongs_in_document(part))
    {
        Ok(content)
    } else {
        Err(D::Error::custom("a document holds only text and media parts"))
    }
}
