//! The payload of a resource part.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    InvalidPart, JsonObject,
    part::fields::{deserialize_from_object, require_string},
};

/// A link to a resource by its URI.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct ResourceLink {
    /// The resource's URI.
    pub uri: String,
    /// Fields this version does not know, kept for whoever does.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: JsonObject,
}

impl ResourceLink {
    /// A link to the resource at a URI.
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
