//! Chunks of a streamed response.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Content, Media, Part, Role, ToolRequest, message::joined};

/// A piece of a streamed answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GenerateResponseChunk")]
pub struct ModelResponseChunk {
    /// The role of the message; a model if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The index of the message that the chunk belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The new content, or all content so far if [`aggregated`](Self::aggregated).
    pub content: Vec<Part>,
    /// The provider's own data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<Value>,
    /// Whether the chunk repeats all previous content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aggregated: bool,
}

impl ModelResponseChunk {
    /// Creates a chunk with this content.
    pub fn new(content: impl Into<Content>) -> Self {
        Self {
            content: content.into().into_parts(),
            ..Self::default()
        }
    }

    /// Returns the text of this chunk.
    pub fn text(&self) -> Cow<'_, str> {
        joined(self.content.iter().filter_map(Part::as_text))
    }

    /// Returns the reasoning in this chunk.
    pub fn reasoning(&self) -> Cow<'_, str> {
        joined(self.content.iter().filter_map(Part::as_reasoning))
    }

    /// Returns the media in this chunk.
    pub fn media(&self) -> impl Iterator<Item = &Media> {
        self.content.iter().filter_map(Part::as_media)
    }

    /// Returns the first JSON value of a data part of this chunk.
    pub fn data(&self) -> Option<&Value> {
        self.content.iter().find_map(Part::as_data)
    }

    /// Returns the tool requests in this chunk.
    pub fn tool_requests(&self) -> impl Iterator<Item = &ToolRequest> {
        self.content.iter().filter_map(Part::as_tool_request)
    }
}

everturn_core::conversions! {
    From<&str> for ModelResponseChunk: |text| Self::new(text);
    From<Part> for ModelResponseChunk: |part| Self::new(part);
}
