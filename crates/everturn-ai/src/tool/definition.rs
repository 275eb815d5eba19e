//! The definition of a tool that a model gets.

use everturn_core::Schema;
use serde_json::{Value, json};

use super::Tool;
use crate::{JsonObject, ToolDefinition};

impl Tool {
    /// Returns the tool's definition for a model: a short name, its description and its schemas.
    pub fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.short_name().to_owned(),
            description: self.description().to_owned(),
            input_schema: Some(shown(self.input_schema())),
            output_schema: Some(shown(self.output_schema())),
            key: Some(self.key()),
            metadata: self.definition_metadata(),
        }
    }

    /// Returns the registry key of the tool.
    pub fn key(&self) -> String {
        self.0
            .key
            .clone()
            .unwrap_or_else(|| self.action_type().key(self.name()))
    }

    fn definition_metadata(&self) -> Option<JsonObject> {
        let mut metadata = JsonObject::new();
        if self.short_name() != self.name() {
            metadata.insert("originalName".to_owned(), self.name().into());
        }
        if self.0.strict {
            metadata.insert("strict".to_owned(), true.into());
        }
        (!metadata.is_empty()).then_some(metadata)
    }
}

/// Returns the schema in the form that clients expect: a tool without one shows the empty schema.
fn shown(schema: Option<&Schema>) -> Value {
    schema.map_or_else(
        || json!({ "$schema": "http://json-schema.org/draft-07/schema#" }),
        |schema| schema.as_json().clone(),
    )
}
