//! The JSON Schema of a part.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{Media, Part, ResourceLink, ToolRequest, ToolResponse};

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
