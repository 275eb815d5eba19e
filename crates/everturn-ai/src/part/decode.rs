//! Parts as JSON: parsing, and the schema.
//!
//! Several keys may be present at once; the precedence is `media`, `toolRequest`, `toolResponse`, `resource`,
//! `custom`, `reasoning`, `data`, `text`. All other keys are kept.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::{InvalidPart, Media, Part, PartKind, ResourceLink, ToolRequest, ToolResponse};
use crate::JsonObject;
use crate::part::fields::{boxed, deserialize_from_object, expect_object, take, take_object, take_string};

impl TryFrom<JsonObject> for Part {
    type Error = InvalidPart;

    fn try_from(mut object: JsonObject) -> Result<Self, InvalidPart> {
        let metadata = take_object(&mut object, "metadata")?;
        let kind = match known_kind(&mut object)? {
            Some(kind) => kind,
            // Some runtimes omit an empty text.
            None if object.is_empty() => PartKind::Text(String::new()),
            None => PartKind::Unknown(Box::new(std::mem::take(&mut object))),
        };
        Ok(Self {
            kind,
            metadata: metadata.and_then(boxed),
            extra: boxed(object),
        })
    }
}

deserialize_from_object!(Part);

fn known_kind(object: &mut JsonObject) -> Result<Option<PartKind>, InvalidPart> {
    if let Some(media) = payload(object, "media")? {
        return Ok(Some(PartKind::Media(Box::new(media))));
    }
    if let Some(request) = payload(object, "toolRequest")? {
        return Ok(Some(PartKind::ToolRequest(Box::new(request))));
    }
    if let Some(response) = payload(object, "toolResponse")? {
        return Ok(Some(PartKind::ToolResponse(Box::new(response))));
    }
    if let Some(resource) = payload(object, "resource")? {
        return Ok(Some(PartKind::Resource(Box::new(resource))));
    }
    if let Some(custom) = take_object(object, "custom")? {
        return Ok(Some(PartKind::Custom(Box::new(custom))));
    }
    // Before `data` and `text`, which some runtimes write too.
    if !is_blank(object.get("reasoning")) {
        return Ok(take_string(object, "reasoning")?.map(PartKind::Reasoning));
    }
    if data_decides(object) {
        return Ok(object.shift_remove("data").map(Box::new).map(PartKind::Data));
    }
    if let Some(text) = take_string(object, "text")? {
        return Ok(Some(PartKind::Text(text)));
    }
    // An empty reasoning part, once nothing else decides.
    Ok(take_string(object, "reasoning")?.map(PartKind::Reasoning))
}

fn payload<T>(object: &mut JsonObject, key: &str) -> Result<Option<T>, InvalidPart>
where
    T: TryFrom<JsonObject, Error = InvalidPart>,
{
    let Some(value) = take(object, key) else {
        return Ok(None);
    };
    T::try_from(expect_object(key, value)?)
        .map(Some)
        .map_err(|error| error.inside(key))
}

/// Returns whether `data` decides the kind. Some runtimes write every field of a part: an empty `data` or
/// `reasoning` must not hide a text.
fn data_decides(object: &JsonObject) -> bool {
    object.contains_key("data")
        && (!is_blank(object.get("data")) || object.get("text").is_none_or(Value::is_null))
}

fn is_blank(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// Parses the array of parts in field `key`.
pub(crate) fn parts(key: &str, value: Value) -> Result<Vec<Part>, InvalidPart> {
    let Value::Array(items) = value else {
        return Err(InvalidPart::new(format!("`{key}` must be an array")));
    };
    let parts = items.into_iter().enumerate().map(|(index, item)| {
        let place = format!("{key}[{index}]");
        Part::try_from(expect_object(&place, item)?).map_err(|error| error.inside(&place))
    });
    let mut parts = parts.collect::<Result<Vec<Part>, _>>()?;
    // `collect` reuses the allocation of the JSON values, which is larger. Caches keep messages for a long
    // time.
    parts.shrink_to_fit();
    Ok(parts)
}

impl JsonSchema for Part {
    fn schema_name() -> Cow<'static, str> {
        "Part".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "One piece of a message. Its kind is told by which of the payload keys it has.",
            "type": "object",
            "properties": {
                "text": { "type": "string" },
                "media": generator.subschema_for::<Media>(),
                "toolRequest": generator.subschema_for::<ToolRequest>(),
                "toolResponse": generator.subschema_for::<ToolResponse>(),
                "data": {},
                "custom": { "type": "object" },
                "reasoning": { "type": "string" },
                "resource": generator.subschema_for::<ResourceLink>(),
                "metadata": { "type": "object" },
            },
        })
    }
}
