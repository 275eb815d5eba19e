//! The payload of a tool request part.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{
    InvalidPart, JsonObject,
    part::fields::{deserialize_from_object, require_string, take, take_string},
};

/// A model's request to run a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct ToolRequest {
    /// Tells calls of one message apart (`ref` on the wire); the response repeats it.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Whether the arguments are still being streamed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Fields this version does not know, kept for whoever does.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: JsonObject,
}

impl ToolRequest {
    /// A call of the named tool with these arguments.
    pub fn new(name: impl Into<String>, input: impl Into<Value>) -> Self {
        Self {
            name: name.into(),
            input: Some(input.into()),
            ..Self::default()
        }
    }

    /// The same request with its reference set.
    pub fn with_reference(self, reference: impl Into<String>) -> Self {
        Self {
            reference: Some(reference.into()),
            ..self
        }
    }

    /// Whether a request or response of that name and reference belongs to this call.
    pub fn is_same_call(&self, name: &str, reference: Option<&str>) -> bool {
        self.name == name && self.reference.as_deref() == reference
    }
}

/// Names the call as error messages do: `tool#ref`, or `tool` when there is no reference.
impl fmt::Display for ToolRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        self.reference
            .as_ref()
            .map_or(Ok(()), |reference| write!(formatter, "#{reference}"))
    }
}

impl TryFrom<JsonObject> for ToolRequest {
    type Error = InvalidPart;

    fn try_from(mut object: JsonObject) -> Result<Self, InvalidPart> {
        Ok(Self {
            reference: take_string(&mut object, "ref")?,
            name: require_string(&mut object, "name")?,
            input: object.shift_remove("input"),
            partial: match take(&mut object, "partial") {
                None => false,
                Some(Value::Bool(partial)) => partial,
                Some(_) => return Err(InvalidPart::new("`partial` must be a boolean")),
            },
            extra: object,
        })
    }
}

deserialize_from_object!(ToolRequest);
