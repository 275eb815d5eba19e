//! The schemas of a document, each written once.

use everturn_core::{Schema, Status};
use serde_json::{Map, Value, json};

/// The schemas collected so far.
pub(super) struct Components {
    schemas: Map<String, Value>,
    /// Each schema of an action, and its name in the document.
    known: Vec<(Schema, String)>,
}

impl Components {
    pub(super) fn new() -> Self {
        let mut schemas = Map::new();
        schemas.insert("Error".into(), error());
        Self {
            schemas,
            known: Vec::new(),
        }
    }

    /// Returns a reference to a schema, adding the schema if it is new. A schema without a title is named
    /// `otherwise`.
    pub(super) fn refer(&mut self, schema: Option<&Schema>, otherwise: &str) -> Value {
        let Some(schema) = schema else {
            return Value::Bool(true);
        };
        let name = match self.known.iter().find(|(known, _)| known == schema) {
            Some((_, name)) => name.clone(),
            None => self.add(schema, otherwise),
        };
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    fn add(&mut self, schema: &Schema, otherwise: &str) -> String {
        let title = schema.as_json().get("title").and_then(Value::as_str);
        let name = [title, Some(otherwise)]
            .into_iter()
            .flatten()
            .map(component_name)
            .find(|name| !self.schemas.contains_key(name));
        let name = name.unwrap_or_else(|| format!("{}.{}", component_name(otherwise), self.schemas.len()));
        let mut json = schema.as_json().clone();
        rebase(&mut json, &format!("#/components/schemas/{name}"));
        self.schemas.insert(name.clone(), json);
        self.known.push((schema.clone(), name.clone()));
        name
    }

    pub(super) fn finish(self) -> Value {
        json!({
            "schemas": self.schemas,
            "responses": {
                "Error": {
                    "description": "The call failed.",
                    "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
                },
            },
        })
    }
}

/// Returns a name with only the characters that component names may have.
fn component_name(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    name.trim_matches('/')
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect()
}

/// Rewrites references within a schema to the schema's place in the document.
fn rebase(schema: &mut Value, root: &str) {
    match schema {
        Value::Object(members) => {
            // The document declares the dialect once.
            members.shift_remove("$schema");
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(pointer) = reference.strip_prefix('#')
            {
                *reference = format!("{root}{pointer}");
            }
            members.values_mut().for_each(|member| rebase(member, root));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rebase(item, root)),
        _ => {}
    }
}

/// Returns the schema of the body of every failure.
fn error() -> Value {
    let statuses: Vec<&str> = Status::all()
        .filter(|status| *status != Status::Ok)
        .map(Status::name)
        .collect();
    json!({
        "type": "object",
        "properties": {
            "status": { "type": "string", "enum": statuses },
            "message": { "type": "string" },
            "details": { "description": "Anything machine-readable that helps." },
        },
        "required": ["status", "message"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_written_once_and_found_by_its_title() {
        let schema = Schema::from_json(json!({ "title": "Soup", "type": "string" })).unwrap();
        let other = Schema::from_json(json!({ "title": "Soup", "type": "number" })).unwrap();
        let mut components = Components::new();

        let first = components.refer(Some(&schema), "/flow/a.input");
        let again = components.refer(Some(&schema), "/flow/b.input");
        let namesake = components.refer(Some(&other), "/flow/c.input");

        assert_eq!(first, json!({ "$ref": "#/components/schemas/Soup" }));
        assert_eq!(first, again);
        assert_eq!(namesake, json!({ "$ref": "#/components/schemas/flow_c.input" }));
    }

    #[test]
    fn references_inside_a_schema_still_lead_to_the_same_place() {
        let recursive = json!({
            "title": "Tree",
            "properties": { "leaf": { "$ref": "#/$defs/Leaf" }, "self": { "$ref": "#" } },
            "$defs": { "Leaf": { "type": "string" } },
        });
        let mut components = Components::new();

        components.refer(Some(&Schema::from_json(recursive).unwrap()), "x");

        let document = json!({ "components": components.finish() });
        let tree = &document["components"]["schemas"]["Tree"];
        let leaf = tree["properties"]["leaf"]["$ref"].as_str().unwrap();
        assert_eq!(document.pointer(&leaf[1..]), Some(&json!({ "type": "string" })));
        let own = tree["properties"]["self"]["$ref"].as_str().unwrap();
        assert_eq!(document.pointer(&own[1..]), Some(tree));
    }
}
