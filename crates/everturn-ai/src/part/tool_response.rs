//! The payload of a tool response part.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::decode::parts;
use crate::{
    InvalidPart, JsonObject, Part, ToolRequest,
    part::fields::{deserialize_from_object, require_string, take, take_string},
};

/// A tool's answer to a [`ToolRequest`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct ToolResponse {
    /// The reference of the request that is answered (`ref` on the wire).
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// What the tool returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Further content, for instance media, that a multipart tool returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Part>,
    /// Fields this version does not know, kept for whoever does.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: JsonObject,
}

impl ToolResponse {
    /// An answer to `request`: its name and reference are copied.
    pub fn to(request: &ToolRequest, output: impl Into<Value>) -> Self {
        Self {
            reference: request.reference.clone(),
            name: request.name.clone(),
            output: Some(output.into()),
            ..Self::default()
        }
    }

    /// The same response with content beside its output.
    pub fn with_content(self, content: Vec<Part>) -> Self {
        Self { content, ..self }
    }
}

impl TryFrom<JsonObject> for ToolResponse {
    type Error = InvalidPart;

    fn try_from(mut object: JsonObject) -> Result<Self, InvalidPart> {
        Ok(Self {
            reference: take_string(&mut object, "ref")?,
            name: require_string(&mut object, "name")?,
            output: object.shift_remove("output"),
            content: take(&mut object, "content").map_or(Ok(Vec::new()), |value| parts("content", value))?,
            extra: object,
        })
    }
}

deserialize_from_object!(ToolResponse);
