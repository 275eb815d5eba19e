//! Messages: the elements of a conversation.
//!
//! A message is immutable, and a clone of it is a new handle to the same content, so conversations are shared
//! and kept without copying. Unknown fields survive reading and writing.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use crate::heap_size::{allocated, of_boxed_object, parts_heap_size};
use crate::message_stats::bytes_of_object;
use crate::part::fields::{boxed, deserialize_from_object, take, take_object};
use crate::part::parts;
use crate::{InvalidPart, JsonObject, Media, MessageStats, Part, Role, ToolRequest};

/// One message of a conversation: a role and content.
///
/// ```
/// use everturn_ai::{Message, Role};
///
/// let question = Message::user("Something with leeks?");
/// let shared = question.clone(); // the content is not copied
/// assert_eq!(shared.role(), Role::User);
/// assert_eq!(shared.text(), "Something with leeks?");
/// ```
#[derive(Clone)]
pub struct Message(Arc<Body>);

#[derive(Clone, PartialEq)]
struct Body {
    role: Role,
    content: Vec<Part>,
    metadata: Option<Box<JsonObject>>,
    extra: Option<Box<JsonObject>>,
    stats: MessageStats,
}

impl Body {
    /// Updates the statistics after a change of the content.
    fn count_content(&mut self) {
        let (metadata, extra) = (self.metadata.as_deref(), self.extra.as_deref());
        self.stats = MessageStats::of(self.role, &self.content, metadata, extra);
    }

    fn edit_metadata(&mut self, change: impl FnOnce(&mut JsonObject)) {
        let mut metadata = self.metadata.take().unwrap_or_default();
        let before = bytes_of_object(&metadata);
        change(&mut metadata);
        self.stats = self.stats.with_metadata(self.role, before, &metadata);
        self.metadata = (!metadata.is_empty()).then_some(metadata);
    }
}

impl Message {
    /// Creates a message of a role with this content.
    pub fn new(role: Role, content: impl Into<Content>) -> Self {
        let content = content.into().into_parts();
        let stats = MessageStats::of(role, &content, None, None);
        Self(Arc::new(Body {
            role,
            content,
            metadata: None,
            extra: None,
            stats,
        }))
    }

    /// Creates a system message.
    pub fn system(content: impl Into<Content>) -> Self {
        Self::new(Role::System, content)
    }

    /// Creates a user message.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new(Role::User, content)
    }

    /// Creates a model message.
    pub fn model(content: impl Into<Content>) -> Self {
        Self::new(Role::Model, content)
    }

    /// Creates a message with the answers of tools.
    pub fn tool(content: impl Into<Content>) -> Self {
        Self::new(Role::Tool, content)
    }

    /// Returns the role of the author.
    pub fn role(&self) -> Role {
        self.0.role
    }

    /// Returns the parts of the message.
    pub fn content(&self) -> &[Part] {
        &self.0.content
    }

    /// Returns the message's metadata; `None` when there is none.
    pub fn metadata(&self) -> Option<&JsonObject> {
        self.0.metadata.as_deref()
    }

    /// Returns one entry of the metadata.
    pub fn metadata_entry(&self, key: &str) -> Option<&Value> {
        self.0.metadata.as_ref()?.get(key)
    }

    /// Returns the text of all text parts, joined; borrowed if there is only one.
    pub fn text(&self) -> Cow<'_, str> {
        joined(self.content().iter().filter_map(Part::as_text))
    }

    /// Returns the text of all reasoning parts, joined; borrowed if there is only one.
    pub fn reasoning(&self) -> Cow<'_, str> {
        joined(self.content().iter().filter_map(Part::as_reasoning))
    }

    /// Returns the media in the message.
    pub fn media(&self) -> impl Iterator<Item = &Media> {
        self.content().iter().filter_map(Part::as_media)
    }

    /// Returns the first JSON value of a data part.
    pub fn data(&self) -> Option<&Value> {
        self.content().iter().find_map(Part::as_data)
    }

    /// Returns the tool requests in the message.
    pub fn tool_requests(&self) -> impl Iterator<Item = &ToolRequest> {
        self.content().iter().filter_map(Part::as_tool_request)
    }

    /// Returns the parts that hold the tool requests, with their metadata.
    pub fn tool_request_parts(&self) -> impl Iterator<Item = &Part> {
        self.content()
            .iter()
            .filter(|part| part.as_tool_request().is_some())
    }

    /// Returns the interrupted tool requests, which wait for an answer.
    pub fn interrupts(&self) -> impl Iterator<Item = &Part> {
        self.content().iter().filter(|part| part.interrupt().is_some())
    }

    /// Returns the approximate heap size of the message in bytes. Its clones share them.
    pub fn heap_size(&self) -> usize {
        let body = &*self.0;
        allocated(size_of_val(body) + 2 * size_of::<usize>())
            + parts_heap_size(&body.content)
            + of_boxed_object(body.metadata.as_deref())
            + of_boxed_object(body.extra.as_deref())
    }

    /// Returns the statistics of the message's content.
    pub fn stats(&self) -> MessageStats {
        self.0.stats
    }

    /// Returns whether both are handles to the same message. This is stricter and cheaper than equality.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns this message with other content.
    pub fn with_content(self, content: impl Into<Content>) -> Self {
        let content = content.into().into_parts();
        self.edit(|body| {
            body.content = content;
            body.count_content();
        })
    }

    /// Returns this message with one more part at its end.
    pub fn with_part(self, part: impl Into<Part>) -> Self {
        let part = part.into();
        self.edit(|body| {
            body.content.push(part);
            body.count_content();
        })
    }

    /// Replaces the metadata.
    pub fn with_metadata(self, metadata: JsonObject) -> Self {
        self.edit(|body| body.edit_metadata(|all| *all = metadata))
    }

    /// Returns this message with one metadata entry set.
    pub fn with_metadata_entry(self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.edit(|body| {
            body.edit_metadata(|metadata| {
                metadata.insert(key.into(), value.into());
            });
        })
    }

    /// Removes one metadata entry; removes the metadata if that was the only one.
    pub fn without_metadata_entry(self, key: &str) -> Self {
        if self.metadata_entry(key).is_none() {
            return self;
        }
        self.edit(|body| {
            body.edit_metadata(|metadata| {
                metadata.shift_remove(key);
            });
        })
    }

    fn edit(mut self, change: impl FnOnce(&mut Body)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

/// Joins texts; borrows if there is only one.
pub(crate) fn joined<'a>(mut texts: impl Iterator<Item = &'a str>) -> Cow<'a, str> {
    let mut joined = Cow::Borrowed(texts.next().unwrap_or_default());
    for text in texts {
        joined.to_mut().push_str(text);
    }
    joined
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0 == other.0
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Message");
        debug
            .field("role", &self.0.role)
            .field("content", &self.0.content);
        if let Some(metadata) = self.metadata() {
            debug.field("metadata", metadata);
        }
        debug.finish()
    }
}

everturn_core::conversions! {
    /// Converts a string into a user message.
    From<&str> for Message: |text| Self::user(text);
    /// Converts a string into a user message.
    From<String> for Message: |text| Self::user(text);
    /// Converts parts into a user message.
    From<Vec<Part>> for Message: |parts| Self::user(parts);
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", &self.0.role)?;
        map.serialize_entry("content", &self.0.content)?;
        if let Some(metadata) = self.metadata().filter(|metadata| !metadata.is_empty()) {
            map.serialize_entry("metadata", metadata)?;
        }
        for (key, value) in self.0.extra.iter().flat_map(|extra| extra.iter()) {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl TryFrom<JsonObject> for Message {
    type Error = InvalidPart;

    fn try_from(mut object: JsonObject) -> Result<Self, InvalidPart> {
        let role = take(&mut object, "role").ok_or_else(|| InvalidPart::new("`role` is required"))?;
        let role = serde_json::from_value(role)
            .map_err(|_| InvalidPart::new("`role` must be one of system, user, model, tool"))?;
        let content =
            take(&mut object, "content").ok_or_else(|| InvalidPart::new("`content` is required"))?;
        let content = parts("content", content)?;
        let metadata = take_object(&mut object, "metadata")?.and_then(boxed);
        let extra = boxed(object);
        let stats = MessageStats::of(role, &content, metadata.as_deref(), extra.as_deref());
        Ok(Self(Arc::new(Body {
            role,
            content,
            metadata,
            extra,
            stats,
        })))
    }
}

deserialize_from_object!(Message);

impl JsonSchema for Message {
    fn schema_name() -> Cow<'static, str> {
        "Message".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "One message of a conversation.",
            "type": "object",
            "properties": {
                "role": generator.subschema_for::<Role>(),
                "content": generator.subschema_for::<Vec<Part>>(),
                "metadata": { "type": "object" },
            },
            "required": ["role", "content"],
        })
    }
}

/// The content of a message, converted from text, a part or several parts.
///
/// Functions that take content accept `impl Into<Content>`: a string, a [`Part`], or a list of parts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Content(Vec<Part>);

impl Content {
    /// Returns the parts.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// Returns the parts, consuming the content.
    pub fn into_parts(self) -> Vec<Part> {
        self.0
    }
}

everturn_core::conversions! {
    From<Part> for Content: |part| Self(vec![part]);
    From<Vec<Part>> for Content: |parts| Self(parts);
    From<&[Part]> for Content: |parts| Self(parts.to_vec());
    From<&str> for Content: |text| Part::text(text).into();
    From<String> for Content: |text| Part::text(text).into();
    From<&String> for Content: |text| Part::text(text).into();
    From<Media> for Content: |media| Part::from(media).into();
}

impl<const N: usize> From<[Part; N]> for Content {
    fn from(parts: [Part; N]) -> Self {
        Self(parts.into())
    }
}

impl FromIterator<Part> for Content {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        Self(parts.into_iter().collect())
    }
}
