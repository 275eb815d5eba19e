//! The description of a model, and references to models.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The capabilities of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelInfo {
    /// The supported versions; any, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<Vec<String>>,
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The JSON Schema of the model's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
    /// The features that the model supports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supports: Option<ModelSupports>,
    /// How mature the model is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<ModelStage>,
    /// The most tokens that a request may have; unknown if not given. A [window](crate::window) is sized by
    /// it. It is not part of the wire format; listings report it separately from the model's description.
    #[serde(skip)]
    pub max_input_tokens: Option<u64>,
}

/// The features that a model supports; undeclared ones are assumed to work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelSupports {
    /// More than one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiturn: Option<bool>,
    /// Media in requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media: Option<bool>,
    /// Calling tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// System messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_role: Option<bool>,
    /// The output formats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Vec<String>>,
    /// The MIME types of output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<Vec<String>>,
    /// Context documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<bool>,
    /// Enforcing an output schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constrained: Option<ConstrainedSupport>,
    /// Tool choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<bool>,
    /// Working in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_running: Option<bool>,
}

/// When a model can enforce an output schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ConstrainedSupport {
    /// Never.
    None,
    /// Always.
    All,
    /// Only in requests without tools.
    NoTools,
}

/// How mature a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ModelStage {
    /// Recommended.
    Featured,
    /// Ready for production.
    Stable,
    /// May change.
    Unstable,
    /// Works, but there are better ones.
    Legacy,
    /// To be removed.
    Deprecated,
}

/// A model by name, with settings for it. May be read from a bare string.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct ModelReference {
    /// The model's name.
    pub name: String,
    /// Settings to use when a call gives none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

impl ModelReference {
    /// Creates a reference to the named model without settings.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            config: None,
        }
    }

    everturn_core::setters! {
        /// Sets the settings.
        pub fn with_config(mut self, config: impl Into<Value>) { self.config = Some(config.into()) }
    }
}

everturn_core::conversions! {
    From<&str> for ModelReference: |name| Self::new(name);
    From<String> for ModelReference: |name| Self::new(name);
}

impl<'de> Deserialize<'de> for ModelReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Wire {
            Bare(String),
            Whole { name: String, config: Option<Value> },
        }

        Ok(match Wire::deserialize(deserializer)? {
            Wire::Bare(name) => Self { name, config: None },
            Wire::Whole { name, config } => Self { name, config },
        })
    }
}
