//! The payloads that refer to something by a URL: media and links to resources.

use schemars::JsonSchema;
use serde::Serialize;

use crate::part::fields::{deserialize_from_object, require_string, take_string};
use crate::{InvalidPart, JsonObject};

/// A file that is part of a message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Media {
    /// The MIME type, if the URL does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Where the file is: a `data:`, `https:` or provider-specific URL.
    pub url: String,
    /// Unknown fields, which are written back unchanged.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: JsonObject,
}

impl Media {
    /// Media at a URL, which may be a `data:` URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ..Self::default()
        }
    }

    /// Returns this media with its MIME type named.
    pub fn with_content_type(self, content_type: impl Into<String>) -> Self {
        Self {
            content_type: Some(content_type.into()),
            ..self
        }
    }

    /// Returns the MIME type: the one named, else the one in a `data:` URL.
    pub fn mime_type(&self) -> Option<&str> {
        self.content_type.as_deref().or_else(|| {
            let mime = self.url.strip_prefix("data:")?.split([';', ',']).next()?;
            (!mime.is_empty()).then_some(mime)
        })
    }
}

impl TryFrom<JsonObject> for Media {
    type Error = InvalidPart;

    fn try_from(mut object: JsonObject) -> Result<Self, InvalidPart> {
        Ok(Self {
            content_type: take_string(&mut object, "contentType")?,
            url: require_string(&mut object, "url")?,
            extra: object,
        })
    }
}

deserialize_from_object!(Media);

/// A link to a resource by its URI.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct ResourceLink {
    /// The resource's URI.
    pub uri: String,
    /// Unknown fields, which are written back unchanged.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: JsonObject,
}

impl ResourceLink {
    /// Creates a link to the resource at a URI.
    pub fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            extra: JsonObject::new(),
        }
    }
}

impl TryFrom<JsonObject> for ResourceLink {
    type Error = InvalidPart;

    fn try_from(mut object: JsonObject) -> Result<Self, InvalidPart> {
        Ok(Self {
            uri: require_string(&mut object, "uri")?,
            extra: object,
        })
    }
}

deserialize_from_object!(ResourceLink);
