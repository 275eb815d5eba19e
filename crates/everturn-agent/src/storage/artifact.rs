//! Artifacts: the products of a conversation other than its messages.

use everturn_ai::{Content, JsonObject, Part, json_heap_size, parts_heap_size};
use everturn_macros::wire;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A document, picture or other product of a conversation.
///
/// An artifact with a name replaces the one of that name in place; one without a name is always appended.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// The name, if it has one.
    pub name: Option<String>,
    /// The content.
    pub parts: Vec<Part>,
    /// Metadata about the artifact.
    pub metadata: Option<JsonObject>,
}

impl Artifact {
    /// Creates a named artifact.
    pub fn new(name: impl Into<String>, content: impl Into<Content>) -> Self {
        Self {
            name: Some(name.into()),
            parts: content.into().into_parts(),
            metadata: None,
        }
    }

    /// Creates a named artifact of one text.
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(name, text.into())
    }

    /// Creates an artifact without a name.
    pub fn unnamed(content: impl Into<Content>) -> Self {
        Self {
            name: None,
            parts: content.into().into_parts(),
            metadata: None,
        }
    }

    /// Sets one metadata entry.
    pub fn with_metadata_entry(
        mut self,
        key: impl Into<String>,
        value: impl Into<serde_json::Value>,
    ) -> Self {
        self.metadata
            .get_or_insert_default()
            .insert(key.into(), value.into());
        self
    }

    /// Returns the name, unless it is missing or empty.
    pub fn given_name(&self) -> Option<&str> {
        self.name.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns the text of all text parts, joined.
    pub fn content_text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }

    /// Returns the approximate size of the artifact in a list on the heap, in bytes.
    pub fn heap_size(&self) -> usize {
        let metadata = self.metadata.iter().flatten();
        size_of::<Self>()
            + self.name.as_ref().map_or(0, String::capacity)
            + parts_heap_size(&self.parts)
            + metadata
                .map(|(name, value)| name.capacity() + size_of::<Value>() * 2 + json_heap_size(value))
                .sum::<usize>()
    }
}

/// Adds an artifact to a list: replaces the one of the same name in place, or else appends.
pub(crate) fn put(artifacts: &mut Vec<Artifact>, artifact: Artifact) {
    let twin = artifact.given_name().and_then(|name| {
        artifacts
            .iter()
            .position(|existing| existing.given_name() == Some(name))
    });
    match twin {
        Some(position) => artifacts[position] = artifact,
        None => artifacts.push(artifact),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_replaces_in_place_and_no_name_appends() {
        let mut artifacts = vec![
            Artifact::text("a", "1"),
            Artifact::text("b", "2"),
            Artifact::unnamed("3"),
        ];

        put(&mut artifacts, Artifact::text("a", "4"));
        put(&mut artifacts, Artifact::unnamed("5"));

        let texts: Vec<String> = artifacts.iter().map(Artifact::content_text).collect();
        assert_eq!(texts, ["4", "2", "3", "5"]);
    }
}
