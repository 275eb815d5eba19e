//! A tool as models see it.

use everturn_core::Schema;
use serde_json::{Value, json};

use super::Tool;
use crate::{JsonObject, ToolDefinition};

impl Tool {
    /// What a model is told about the tool: a short name, its description and its schemas.
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

    /// The registry key of the tool.
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

/// A tool without a schema shows the empty one, in the form that clients expect.
fn shown(schema: Option<&Schema>) -> Value {
    schema.map_or_else(
        || json!({ "$schema": "http://json-schema.org/draft-07/schema#" }),
        |schema| schema.as_json().clone(),
    )
}
