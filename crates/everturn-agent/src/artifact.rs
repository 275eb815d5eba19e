//! Artifacts: what an agent makes beside what it says.

use everturn_ai::{Content, JsonObject, Part};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A document, picture or other product of a conversation.
///
/// An artifact with a name replaces the one of the same name, in its place; one without is always added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// What it is called, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its content.
    pub parts: Vec<Part>,
    /// Whatever else is known about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

impl Artifact {
    /// A named artifact.
    pub fn new(name: impl Into<String>, content: impl Into<Content>) -> Self {
        Self {
            name: Some(name.into()),
            parts: content.into().into_parts(),
            metadata: None,
        }
    }

    /// A named artifact of one text.
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(name, text.into())
    }

    /// An artifact without a name.
    pub fn unnamed(content: impl Into<Content>) -> Self {
        Self {
            name: None,
            parts: content.into().into_parts(),
            metadata: None,
        }
    }

    /// The same artifact with one metadata entry set.
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

    /// The name, unless it is missing or empty.
    pub fn given_name(&self) -> Option<&str> {
        self.name.as_deref().filter(|name| !name.is_empty())
    }

    /// The text of all text parts, joined.
    pub fn content_text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }
}

/// Adds an artifact to a list by the rule of [`Artifact`]: replaced in place by name, else appended.
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
