//! Parts: what a message is made of.
//!
//! On the wire a part is an object whose kind is told by which key it has. Reading is lenient: a kind that this
//! version does not know becomes [`PartKind::Unknown`], fields beside the payload are kept, and both are written back
//! as they came.

mod decode;
pub(crate) mod fields;
mod media;
mod tool_call;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

pub(crate) use self::decode::parts;
use self::fields::boxed;
pub use self::{
    fields::InvalidPart,
    media::{Media, ResourceLink},
    tool_call::{MultipartToolResponse, ToolRequest, ToolResponse},
};
use crate::{JsonObject, metadata};

/// One piece of a message: its content and, optionally, metadata about it.
///
/// ```
/// use everturn_ai::{Part, PartKind};
///
/// let part = Part::text("Leeks, please.").with_metadata_entry("lang", "en");
/// assert_eq!(part.as_text(), Some("Leeks, please."));
/// assert!(matches!(part.kind(), PartKind::Text(_)));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    kind: PartKind,
    metadata: Option<Box<JsonObject>>,
    extra: Option<Box<JsonObject>>,
}

/// The content of a [`Part`]. Most parts are text; what is larger is in a box, so that text does not pay for it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PartKind {
    /// Plain text.
    Text(String),
    /// An image, a sound, a video or any other file, by URL or inline as a `data:` URL.
    Media(Box<Media>),
    /// The model asks for a tool to be run.
    ToolRequest(Box<ToolRequest>),
    /// What a tool answered.
    ToolResponse(Box<ToolResponse>),
    /// Any JSON value.
    Data(Box<Value>),
    /// An object whose meaning only the provider knows.
    Custom(Box<JsonObject>),
    /// The model's reasoning, as far as the provider shows it.
    Reasoning(String),
    /// A link to a resource, replaced by the resource's content before a model sees it.
    Resource(Box<ResourceLink>),
    /// A kind this version does not know: all the part's fields but its metadata.
    Unknown(Box<JsonObject>),
}

impl Part {
    /// A part of the given kind, without metadata.
    pub fn new(kind: PartKind) -> Self {
        Self {
            kind,
            metadata: None,
            extra: None,
        }
    }

    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartKind::Text(text.into()))
    }

    /// A media part from a URL, which may be a `data:` URL.
    pub fn media(url: impl Into<String>) -> Self {
        Self::new(PartKind::Media(Box::new(Media::new(url))))
    }

    /// A part that asks for a tool to be run.
    pub fn tool_request(request: ToolRequest) -> Self {
        Self::new(PartKind::ToolRequest(Box::new(request)))
    }

    /// A part that carries a tool's answer.
    pub fn tool_response(response: ToolResponse) -> Self {
        Self::new(PartKind::ToolResponse(Box::new(response)))
    }

    /// A part that carries a JSON value.
    pub fn data(value: impl Into<Value>) -> Self {
        Self::new(PartKind::Data(Box::new(value.into())))
    }

    /// A provider-specific part.
    pub fn custom(object: JsonObject) -> Self {
        Self::new(PartKind::Custom(Box::new(object)))
    }

    /// A part with a model's reasoning.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::new(PartKind::Reasoning(text.into()))
    }

    /// A link to a resource.
    pub fn resource(uri: impl Into<String>) -> Self {
        Self::new(PartKind::Resource(Box::new(ResourceLink::new(uri))))
    }

    /// The content of the part.
    pub fn kind(&self) -> &PartKind {
        &self.kind
    }

    /// The content of the part, taken out.
    pub fn into_kind(self) -> PartKind {
        self.kind
    }

    /// The same part with other content; metadata is kept.
    pub fn with_kind(self, kind: PartKind) -> Self {
        Self { kind, ..self }
    }

    /// The text, if this is a text part or a data or custom part that carries text beside its payload.
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            PartKind::Text(text) => Some(text),
            PartKind::Data(_) | PartKind::Custom(_) => self.extra.as_ref()?.get("text")?.as_str(),
            _ => None,
        }
    }

    /// The reasoning, if this is a reasoning part.
    pub fn as_reasoning(&self) -> Option<&str> {
        match &self.kind {
            PartKind::Reasoning(text) => Some(text),
            _ => None,
        }
    }

    /// The media, if this is a media part.
    pub fn as_media(&self) -> Option<&Media> {
        match &self.kind {
            PartKind::Media(media) => Some(media),
            _ => None,
        }
    }

    /// The tool request, if this is one.
    pub fn as_tool_request(&self) -> Option<&ToolRequest> {
        match &self.kind {
            PartKind::ToolRequest(request) => Some(request),
            _ => None,
        }
    }

    /// The tool response, if this is one.
    pub fn as_tool_response(&self) -> Option<&ToolResponse> {
        match &self.kind {
            PartKind::ToolResponse(response) => Some(response),
            _ => None,
        }
    }

    /// The JSON value, if this is a data part.
    pub fn as_data(&self) -> Option<&Value> {
        match &self.kind {
            PartKind::Data(value) => Some(value),
            _ => None,
        }
    }

    /// The provider's object, if this is a custom part.
    pub fn as_custom(&self) -> Option<&JsonObject> {
        match &self.kind {
            PartKind::Custom(object) => Some(object),
            _ => None,
        }
    }

    /// The resource link, if this is one.
    pub fn as_resource(&self) -> Option<&ResourceLink> {
        match &self.kind {
            PartKind::Resource(resource) => Some(resource),
            _ => None,
        }
    }

    /// The part's metadata; `None` when there is none.
    pub fn metadata(&self) -> Option<&JsonObject> {
        self.metadata.as_deref()
    }

    /// One entry of the metadata.
    pub fn metadata_entry(&self, key: &str) -> Option<&Value> {
        self.metadata.as_ref()?.get(key)
    }

    /// The same part with this metadata instead of its own.
    pub fn with_metadata(self, metadata: JsonObject) -> Self {
        Self {
            metadata: boxed(metadata),
            ..self
        }
    }

    /// The same part with one metadata entry set.
    pub fn with_metadata_entry(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata
            .get_or_insert_default()
            .insert(key.into(), value.into());
        self
    }

    /// The same part without the metadata entry of that key.
    pub fn without_metadata_entry(mut self, key: &str) -> Self {
        let rest = self.metadata.take().and_then(|mut metadata| {
            metadata.shift_remove(key);
            boxed(*metadata)
        });
        self.metadata = rest;
        self
    }

    /// What the part is for, from its metadata: `output`, `context`, `history` or a section's name.
    pub fn purpose(&self) -> Option<&str> {
        self.metadata_entry(metadata::PURPOSE)?.as_str()
    }

    /// Whether the part only marks where content of its [`purpose`](Self::purpose) is to go.
    pub fn is_pending(&self) -> bool {
        self.metadata_entry(metadata::PENDING).is_some_and(is_set)
    }

    /// The data of the interrupt that paused this tool request: `true`, or what the tool gave.
    pub fn interrupt(&self) -> Option<&Value> {
        self.as_tool_request()?;
        self.metadata_entry(metadata::INTERRUPT)
            .filter(|value| is_set(value))
    }
}

fn is_set(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

impl Default for Part {
    /// An empty text part.
    fn default() -> Self {
        Self::text("")
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<Media> for Part {
    fn from(media: Media) -> Self {
        Self::new(PartKind::Media(Box::new(media)))
    }
}

impl From<ToolRequest> for Part {
    fn from(request: ToolRequest) -> Self {
        Self::tool_request(request)
    }
}

impl From<ToolResponse> for Part {
    fn from(response: ToolResponse) -> Self {
        Self::tool_response(response)
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.kind {
            PartKind::Text(text) => map.serialize_entry("text", text)?,
            PartKind::Media(media) => map.serialize_entry("media", media)?,
            PartKind::ToolRequest(request) => map.serialize_entry("toolRequest", request)?,
            PartKind::ToolResponse(response) => map.serialize_entry("toolResponse", response)?,
            PartKind::Data(value) => map.serialize_entry("data", value)?,
            PartKind::Custom(object) => map.serialize_entry("custom", object)?,
            PartKind::Reasoning(text) => map.serialize_entry("reasoning", text)?,
            PartKind::Resource(resource) => map.serialize_entry("resource", resource)?,
            PartKind::Unknown(fields) => {
                for (key, value) in fields.iter() {
                    map.serialize_entry(key, value)?;
                }
            }
        }
        if let Some(metadata) = self.metadata.as_deref().filter(|metadata| !metadata.is_empty()) {
            map.serialize_entry("metadata", metadata)?;
        }
        for (key, value) in self.extra.iter().flat_map(|extra| extra.iter()) {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_does_not_pay_for_larger_kinds() {
        assert!(size_of::<Part>() <= 48, "{}", size_of::<Part>());
    }
}
