//! Parts: the elements of a message.
//!
//! On the wire a part is an object whose keys determine its kind. Reading is lenient: an unknown kind becomes
//! [`PartKind::Unknown`], additional fields are kept, and both are written back unchanged.

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

/// The content of a [`Part`]. Most parts are text; larger payloads are boxed to keep text parts small.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PartKind {
    /// Plain text.
    Text(String),
    /// An image, a sound, a video or any other file, by URL or inline as a `data:` URL.
    Media(Box<Media>),
    /// A model's request to run a tool.
    ToolRequest(Box<ToolRequest>),
    /// A tool's answer.
    ToolResponse(Box<ToolResponse>),
    /// Any JSON value.
    Data(Box<Value>),
    /// An object that only the provider interprets.
    Custom(Box<JsonObject>),
    /// The model's reasoning, as far as the provider shows it.
    Reasoning(String),
    /// A link to a resource, replaced by the resource's content before a model sees it.
    Resource(Box<ResourceLink>),
    /// An unknown kind: all the part's fields except its metadata.
    Unknown(Box<JsonObject>),
}

impl Part {
    /// Creates a part of the given kind, without metadata.
    pub fn new(kind: PartKind) -> Self {
        Self {
            kind,
            metadata: None,
            extra: None,
        }
    }

    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartKind::Text(text.into()))
    }

    /// Creates a media part from a URL, which may be a `data:` URL.
    pub fn media(url: impl Into<String>) -> Self {
        Self::new(PartKind::Media(Box::new(Media::new(url))))
    }

    /// Creates a part that asks for a tool to be run.
    pub fn tool_request(request: ToolRequest) -> Self {
        Self::new(PartKind::ToolRequest(Box::new(request)))
    }

    /// Creates a part that carries a tool's answer.
    pub fn tool_response(response: ToolResponse) -> Self {
        Self::new(PartKind::ToolResponse(Box::new(response)))
    }

    /// Creates a part that carries a JSON value.
    pub fn data(value: impl Into<Value>) -> Self {
        Self::new(PartKind::Data(Box::new(value.into())))
    }

    /// Creates a provider-specific part.
    pub fn custom(object: JsonObject) -> Self {
        Self::new(PartKind::Custom(Box::new(object)))
    }

    /// Creates a part with a model's reasoning.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::new(PartKind::Reasoning(text.into()))
    }

    /// Creates a link to a resource.
    pub fn resource(uri: impl Into<String>) -> Self {
        Self::new(PartKind::Resource(Box::new(ResourceLink::new(uri))))
    }

    /// Returns the content of the part.
    pub fn kind(&self) -> &PartKind {
        &self.kind
    }

    /// Returns the content of the part, consuming it.
    pub fn into_kind(self) -> PartKind {
        self.kind
    }

    /// Replaces the content; the metadata is kept.
    pub fn with_kind(self, kind: PartKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the text, if this is a text part or a data or custom part that has text in addition to its
    /// payload.
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            PartKind::Text(text) => Some(text),
            PartKind::Data(_) | PartKind::Custom(_) => self.extra.as_ref()?.get("text")?.as_str(),
            _ => None,
        }
    }

    /// Returns the reasoning, if this is a reasoning part.
    pub fn as_reasoning(&self) -> Option<&str> {
        match &self.kind {
            PartKind::Reasoning(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the media, if this is a media part.
    pub fn as_media(&self) -> Option<&Media> {
        match &self.kind {
            PartKind::Media(media) => Some(media),
            _ => None,
        }
    }

    /// Returns the tool request, if this is one.
    pub fn as_tool_request(&self) -> Option<&ToolRequest> {
        match &self.kind {
            PartKind::ToolRequest(request) => Some(request),
            _ => None,
        }
    }

    /// Returns the tool response, if this is one.
    pub fn as_tool_response(&self) -> Option<&ToolResponse> {
        match &self.kind {
            PartKind::ToolResponse(response) => Some(response),
            _ => None,
        }
    }

    /// Returns the JSON value, if this is a data part.
    pub fn as_data(&self) -> Option<&Value> {
        match &self.kind {
            PartKind::Data(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the provider's object, if this is a custom part.
    pub fn as_custom(&self) -> Option<&JsonObject> {
        match &self.kind {
            PartKind::Custom(object) => Some(object),
            _ => None,
        }
    }

    /// Returns the resource link, if this is one.
    pub fn as_resource(&self) -> Option<&ResourceLink> {
        match &self.kind {
            PartKind::Resource(resource) => Some(resource),
            _ => None,
        }
    }

    /// Returns the part's metadata; `None` when there is none.
    pub fn metadata(&self) -> Option<&JsonObject> {
        self.metadata.as_deref()
    }

    /// Returns the fields that are unknown for the part's kind.
    pub(crate) fn extra(&self) -> Option<&JsonObject> {
        self.extra.as_deref()
    }

    /// Returns one entry of the metadata.
    pub fn metadata_entry(&self, key: &str) -> Option<&Value> {
        self.metadata.as_ref()?.get(key)
    }

    everturn_core::setters! {
        /// Replaces the metadata.
        pub fn with_metadata(mut self, metadata: JsonObject) { self.metadata = boxed(metadata) }

        /// Returns this part with one metadata entry set.
        pub fn with_metadata_entry(mut self, key: impl Into<String>, value: impl Into<Value>) {
            self.metadata.get_or_insert_default().insert(key.into(), value.into());
        }
    }

    /// Removes the metadata entry with that key.
    pub fn without_metadata_entry(mut self, key: &str) -> Self {
        let rest = self.metadata.take().and_then(|mut metadata| {
            metadata.shift_remove(key);
            boxed(*metadata)
        });
        self.metadata = rest;
        self
    }

    /// Returns the purpose from the part's metadata: `output`, `context`, `history` or a section's name.
    pub fn purpose(&self) -> Option<&str> {
        self.metadata_entry(metadata::PURPOSE)?.as_str()
    }

    /// Returns whether the part is a placeholder that marks where content of its [`purpose`](Self::purpose)
    /// is to go.
    pub fn is_pending(&self) -> bool {
        self.metadata_entry(metadata::PENDING).is_some_and(is_set)
    }

    /// Returns the data of the interrupt that paused this tool request: `true`, or the tool's data.
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
    /// Creates an empty text part.
    fn default() -> Self {
        Self::text("")
    }
}

everturn_core::conversions! {
    From<&str> for Part: |text| Self::text(text);
    From<String> for Part: |text| Self::text(text);
    From<Media> for Part: |media| Self::new(PartKind::Media(Box::new(media)));
    From<ToolRequest> for Part: |request| Self::tool_request(request);
    From<ToolResponse> for Part: |response| Self::tool_response(response);
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
