//! Taking the known fields out of a JSON object, so that the unknown ones can be kept.

use std::{error, fmt};

use serde_json::Value;

use crate::JsonObject;

/// Removes a field and returns it; `null` counts as absent.
pub(crate) fn take(object: &mut JsonObject, key: &str) -> Option<Value> {
    object.shift_remove(key).filter(|value| !value.is_null())
}

pub(crate) fn take_string(object: &mut JsonObject, key: &str) -> Result<Option<String>, InvalidPart> {
    match take(object, key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(InvalidPart::new(format!("`{key}` must be a string"))),
    }
}

pub(crate) fn require_string(object: &mut JsonObject, key: &str) -> Result<String, InvalidPart> {
    take_string(object, key)?.ok_or_else(|| InvalidPart::new(format!("`{key}` is required")))
}

pub(crate) fn take_object(object: &mut JsonObject, key: &str) -> Result<Option<JsonObject>, InvalidPart> {
    take(object, key)
        .map(|value| expect_object(key, value))
        .transpose()
}

pub(crate) fn expect_object(key: &str, value: Value) -> Result<JsonObject, InvalidPart> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(InvalidPart::new(format!("`{key}` must be an object"))),
    }
}

/// Boxes metadata or unknown fields, which most parts and messages do not have; `None` if there are none.
pub(crate) fn boxed(object: JsonObject) -> Option<Box<JsonObject>> {
    (!object.is_empty()).then(|| Box::new(object))
}

/// Implements `Deserialize` through `TryFrom<JsonObject>`.
macro_rules! deserialize_from_object {
    ($($type:ty),+ $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::JsonObject::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use deserialize_from_object;

/// The reason why a JSON object cannot be read as a part or a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPart(String);

impl InvalidPart {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    pub(crate) fn inside(self, key: &str) -> Self {
        Self(format!("in `{key}`: {}", self.0))
    }
}

impl fmt::Display for InvalidPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl error::Error for InvalidPart {}
