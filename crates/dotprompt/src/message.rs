//! Messages and their parts: the result of rendering a prompt, and its history.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

/// The speaker of a message: `system`, `user`, `model`, `tool`, or any other lower-case word.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Role(Cow<'static, str>);

impl Role {
    /// The instructions of the application.
    pub const SYSTEM: Self = Self(Cow::Borrowed("system"));
    /// The person, or the program that stands for one.
    pub const USER: Self = Self(Cow::Borrowed("user"));
    /// The model.
    pub const MODEL: Self = Self(Cow::Borrowed("model"));
    /// A tool that answers the model.
    pub const TOOL: Self = Self(Cow::Borrowed("tool"));

    /// Returns the role's name as written in a template.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Role {
    fn from(name: &str) -> Self {
        match name {
            "system" => Self::SYSTEM,
            "user" => Self::USER,
            "model" => Self::MODEL,
            "tool" => Self::TOOL,
            other => Self(Cow::Owned(other.to_owned())),
        }
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer).map(|name| Self::from(&*name))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<str> for Role {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Role {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

/// One message of a conversation.
///
/// Content and metadata are shared, so that a message is cheap to clone however long it is: a history is
/// rendered by reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The role of the speaker.
    pub role: Role,
    /// The parts of the message.
    #[serde(default)]
    pub content: Arc<Vec<Part>>,
    /// Additional data about the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Arc<Map<String, Value>>>,
}

static HISTORY: LazyLock<Arc<Map<String, Value>>> =
    LazyLock::new(|| Arc::new(Map::from_iter([("purpose".to_owned(), Value::from("history"))])));

impl Message {
    /// Creates a message of `role` with the given parts.
    pub fn new(role: Role, content: Vec<Part>) -> Self {
        Self {
            role,
            content: Arc::new(content),
            metadata: None,
        }
    }

    /// Creates a message of the user with one part of text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::USER, vec![Part::text(text)])
    }

    /// Creates a message of the model with one part of text.
    pub fn model(text: impl Into<String>) -> Self {
        Self::new(Role::MODEL, vec![Part::text(text)])
    }

    /// Creates a system message with one part of text.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::SYSTEM, vec![Part::text(text)])
    }

    /// Returns the joined text of all parts that have text.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Part::as_text).collect()
    }

    /// Returns the message with `purpose: history` in its metadata, as `{{history}}` inserts it.
    #[must_use]
    pub fn as_history(&self) -> Self {
        let metadata = match &self.metadata {
            None => HISTORY.clone(),
            Some(metadata) => {
                let mut metadata = Map::clone(metadata);
                metadata.insert("purpose".to_owned(), Value::from("history"));
                Arc::new(metadata)
            }
        };
        Self {
            role: self.role.clone(),
            content: self.content.clone(),
            metadata: Some(metadata),
        }
    }
}

/// One part of a message.
///
/// Templates produce the first three kinds. A part of a history that has another shape, or more keys than
/// these, is kept whole as [`Part::Other`].
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Text.
    Text(String),
    /// A picture, a sound, a film or a document, by reference.
    Media(Media),
    /// A named place for content that the sender of the prompt adds; written by `{{section "name"}}`.
    Section(String),
    /// Any other part, unchanged.
    Other(Map<String, Value>),
}

/// The reference that a media part holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Media {
    /// The URL of the content, often a `data:` URL that contains it.
    pub url: String,
    /// The media type, if the template names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

impl Part {
    /// Creates a part of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Returns the text of this part, if it has text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Other(part) => part.get("text").and_then(Value::as_str),
            Self::Media(_) | Self::Section(_) => None,
        }
    }

    fn from_map(part: Map<String, Value>) -> Self {
        if part.len() == 1 {
            if let Some(Value::String(text)) = part.get("text") {
                return Self::Text(text.clone());
            }
            if let Some(Ok(media)) = part.get("media").map(Media::deserialize) {
                return Self::Media(media);
            }
            if let Some(name) = part.get("metadata").and_then(section_name) {
                return Self::Section(name.to_owned());
            }
        }
        Self::Other(part)
    }
}

fn section_name(metadata: &Value) -> Option<&str> {
    let metadata = metadata.as_object().filter(|map| map.len() == 2)?;
    let pending = metadata.get("pending") == Some(&Value::Bool(true));
    metadata
        .get("purpose")
        .and_then(Value::as_str)
        .filter(|_| pending)
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::Other(part) = self {
            return part.serialize(serializer);
        }
        let mut part = serializer.serialize_map(Some(1))?;
        match self {
            Self::Text(text) => part.serialize_entry("text", text)?,
            Self::Media(media) => part.serialize_entry("media", media)?,
            Self::Section(name) => {
                part.serialize_entry("metadata", &json!({"purpose": name, "pending": true}))?;
            }
            Self::Other(_) => {}
        }
        part.end()
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::from_map)
    }
}
