//! Tool calls in parts: the request, the response, and how an interrupted request is answered or restarted.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::PartKind;
use super::decode::parts;
use crate::part::fields::{deserialize_from_object, require_string, take, take_string};
use crate::{InvalidPart, JsonObject, Part, metadata};

/// A model's request to run a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct ToolRequest {
    /// Distinguishes the calls of one message (`ref` on the wire); the response repeats it.
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
    /// Unknown fields, which are written back unchanged.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: JsonObject,
}

impl ToolRequest {
    /// Creates a call of the named tool with these arguments.
    pub fn new(name: impl Into<String>, input: impl Into<Value>) -> Self {
        Self {
            name: name.into(),
            input: Some(input.into()),
            ..Self::default()
        }
    }

    /// Returns this request with its reference set.
    pub fn with_reference(self, reference: impl Into<String>) -> Self {
        Self {
            reference: Some(reference.into()),
            ..self
        }
    }

    /// Returns whether a request or response of that name and reference belongs to this call.
    pub fn is_same_call(&self, name: &str, reference: Option<&str>) -> bool {
        self.name == name && self.reference.as_deref() == reference
    }
}

/// Formats the call as error messages name it: `tool#ref`, or `tool` without a reference.
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

/// A tool's answer to a [`ToolRequest`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct ToolResponse {
    /// The reference of the request that is answered (`ref` on the wire).
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The output of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Further content, for instance media, that a multipart tool returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Part>,
    /// Unknown fields, which are written back unchanged.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: JsonObject,
}

impl ToolResponse {
    /// Creates an answer to `request` with its name and reference.
    pub fn to(request: &ToolRequest, output: impl Into<Value>) -> Self {
        Self {
            reference: request.reference.clone(),
            name: request.name.clone(),
            output: Some(output.into()),
            ..Self::default()
        }
    }

    /// Sets the content in addition to the output.
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

impl Part {
    /// Returns whether this is a call of a tool that the client brought, answered or not.
    pub fn is_call_of_client(&self) -> bool {
        let asked = self
            .metadata_entry(metadata::INTERRUPT)
            .or_else(|| self.metadata_entry(metadata::RESOLVED_INTERRUPT));
        asked.and_then(|data| data.get(metadata::CLIENT_TOOL)) == Some(&Value::Bool(true))
    }

    /// Returns whether this call waits because it is unknown whether it took effect: its process died while
    /// it ran, or it failed without stating that nothing happened.
    pub fn is_outcome_unknown(&self) -> bool {
        self.interrupt().is_some_and(metadata::is_outcome_unknown)
    }

    /// Returns the answer of a call that finished while another call of the message was interrupted.
    pub(crate) fn pending_answer(&self) -> Option<Part> {
        let output = self.metadata_entry(metadata::PENDING_OUTPUT)?.clone();
        let content = self.metadata_entry(metadata::PENDING_CONTENT).cloned();
        let content = content
            .and_then(|content| serde_json::from_value(content).ok())
            .unwrap_or_default();
        let response = ToolResponse::to(self.as_tool_request()?, output).with_content(content);
        Some(Part::tool_response(response).with_metadata_entry(metadata::SOURCE, metadata::SOURCE_PENDING))
    }

    /// Returns the part that answers this interrupted tool request with `output`.
    ///
    /// `metadata` is recorded with the answer; `None` records `true`. Returns `None` if this is not a tool
    /// request.
    pub fn respond(&self, output: impl Into<Value>, metadata: Option<Value>) -> Option<Part> {
        let response = ToolResponse::to(self.as_tool_request()?, output);
        let note = metadata.unwrap_or(Value::Bool(true));
        Some(Part::tool_response(response).with_metadata_entry(metadata::INTERRUPT_RESPONSE, note))
    }

    /// Returns the part that runs this interrupted tool request again.
    ///
    /// `answer` is handed to the tool; `None` hands it `true`. `replace_input`, if given, replaces the
    /// arguments, and the old ones are recorded. Returns `None` if this is not a tool request.
    pub fn restart(&self, answer: Option<Value>, replace_input: Option<Value>) -> Option<Part> {
        let mut request = self.as_tool_request()?.clone();
        let mut part = self
            .clone()
            .without_metadata_entry(metadata::INTERRUPT)
            .with_metadata_entry(metadata::RESUMED, answer.unwrap_or(Value::Bool(true)));
        if let Some(input) = replace_input {
            let replaced = request.input.replace(input).unwrap_or(Value::Null);
            part = part.with_metadata_entry(metadata::REPLACED_INPUT, replaced);
        }
        Some(part.with_kind(PartKind::ToolRequest(Box::new(request))))
    }
}

/// The result of a tool that can answer with more than one JSON value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MultipartToolResponse {
    /// The value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Content in addition to the value, for instance media.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Part>,
    /// Metadata for the response part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}
