//! The tools of a request in the providers' form: restricted names, and arguments that are objects.

use std::borrow::Cow;

use everturn_ai::{JsonObject, ToolDefinition, ToolRequest};
use serde_json::{Value, json};

/// The property with the input of a tool that does not take an object, because providers support only
/// objects.
const INPUT: &str = "input";

/// Keywords that providers reject at the top of a schema.
const REFUSED_AT_TOP: [&str; 7] = ["oneOf", "anyOf", "allOf", "not", "enum", "const", "$ref"];

/// Keywords that stay at the top of a schema when the rest of it becomes a property.
const KEPT_AT_TOP: [&str; 3] = ["$schema", "$defs", "definitions"];

/// The tools of a request, with the conversion of their names and inputs.
#[derive(Debug, Default)]
pub(crate) struct WireTools {
    /// Own names and names on the wire, where they differ.
    renamed: Vec<(String, String)>,
    /// The own names of the tools whose input is a property of their arguments.
    wrapped: Vec<String>,
    max_chars: usize,
}

impl WireTools {
    /// Tools with names of at most so many letters, digits, `_` and `-`, of which the first is a letter or
    /// `_`.
    pub(crate) fn new(tools: &[ToolDefinition], max_chars: usize) -> Self {
        let wrapped = tools.iter().filter(|tool| is_wrapped(tool.input_schema.as_ref()));
        let mut wire = Self {
            renamed: Vec::new(),
            wrapped: wrapped.map(|tool| tool.name.clone()).collect(),
            max_chars,
        };
        for tool in tools {
            let allowed = allowed(&tool.name, max_chars);
            if allowed != tool.name {
                let is_taken = |name: &str| {
                    tools.iter().any(|tool| tool.name == name)
                        || wire.renamed.iter().any(|(_, taken)| taken == name)
                };
                let numbered =
                    (2..).map(|number| format!("{}_{number}", &allowed[..allowed.len().min(max_chars - 4)]));
                let free = std::iter::once(allowed.to_string())
                    .chain(numbered)
                    .find(|name| !is_taken(name));
                wire.renamed.push((tool.name.clone(), free.unwrap_or_default()));
            }
        }
        wire
    }

    /// Returns the name of a tool on the wire; also of a tool that the request no longer has.
    pub(crate) fn to_wire<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        match self.renamed.iter().find(|(own, _)| own == name) {
            Some((_, wire)) => Cow::Borrowed(wire),
            None => allowed(name, self.max_chars),
        }
    }

    /// Returns the own name for a name on the wire.
    pub(crate) fn meant_by<'a>(&'a self, name: &'a str) -> &'a str {
        let known = self.renamed.iter().find(|(_, wire)| wire == name);
        known.map_or(name, |(own, _)| own)
    }

    /// Returns the input of the tool of that (own) name, from the provider's arguments.
    pub(crate) fn input(&self, name: &str, arguments: Value) -> Value {
        match arguments {
            Value::Object(mut members) if members.len() == 1 && self.is_wrapped(name) => members
                .shift_remove(INPUT)
                .unwrap_or_else(|| Value::Object(members)),
            other => other,
        }
    }

    /// Returns the arguments of an earlier call, as an object.
    pub(crate) fn arguments(&self, request: &ToolRequest) -> Value {
        match &request.input {
            None | Some(Value::Null) => json!({}),
            Some(input @ Value::Object(_)) if !self.is_wrapped(&request.name) => input.clone(),
            Some(other) => json!({ INPUT: other }),
        }
    }

    /// Returns the arguments of an earlier call, as the JSON text that OpenAI's protocols require.
    pub(crate) fn arguments_text(&self, request: &ToolRequest) -> String {
        match &request.input {
            // A text is the model's output that was not JSON.
            Some(Value::String(text)) if !self.is_wrapped(&request.name) => text.clone(),
            _ => self.arguments(request).to_string(),
        }
    }

    fn is_wrapped(&self, name: &str) -> bool {
        self.wrapped.iter().any(|wrapped| wrapped == name)
    }
}

/// The schema of a tool's arguments, which are always an object.
pub(crate) fn parameters(tool: &ToolDefinition) -> JsonObject {
    let Some(Value::Object(schema)) = &tool.input_schema else {
        let nothing = [("type", json!("object")), ("properties", json!({}))];
        return nothing
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect();
    };
    let mut schema = schema.clone();
    if is_wrapped(tool.input_schema.as_ref()) {
        return wrapped(schema);
    }
    schema.insert("type".to_owned(), json!("object"));
    schema
}

/// Returns whether a schema must be wrapped: it is not one of objects, or not one that providers accept at
/// the top.
fn is_wrapped(schema: Option<&Value>) -> bool {
    let Some(Value::Object(schema)) = schema else {
        return false;
    };
    let takes_object = match schema.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    !takes_object || REFUSED_AT_TOP.iter().any(|keyword| schema.contains_key(*keyword))
}

/// Makes a schema the property `input` of an object.
fn wrapped(mut schema: JsonObject) -> JsonObject {
    let kept = KEPT_AT_TOP.map(|keyword| Some((keyword.to_owned(), schema.shift_remove(keyword)?)));
    let mut inner = Value::Object(schema);
    let mut outer: JsonObject = kept.into_iter().flatten().collect();
    move_references(&mut inner);
    outer.values_mut().for_each(move_references);
    outer.insert("type".to_owned(), json!("object"));
    outer.insert("properties".to_owned(), json!({ INPUT: inner }));
    outer.insert("required".to_owned(), json!([INPUT]));
    outer.insert("additionalProperties".to_owned(), json!(false));
    outer
}

/// Adjusts references to the schema itself. Definitions stay at their place.
fn move_references(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(path) = reference.strip_prefix('#')
                && !path.starts_with("/$defs/")
                && !path.starts_with("/definitions/")
            {
                *reference = format!("#/properties/{INPUT}{path}");
            }
            members.values_mut().for_each(move_references);
        }
        Value::Array(entries) => entries.iter_mut().for_each(move_references),
        _ => {}
    }
}

fn allowed(name: &str, max_chars: usize) -> Cow<'_, str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins_well && name.len() <= max_chars && name.chars().all(is_allowed) {
        return Cow::Borrowed(name);
    }
    let replaced = name.chars().map(|c| if is_allowed(c) { c } else { '_' });
    let begun = (!begins_well).then_some('_').into_iter().chain(replaced);
    Cow::Owned(begun.take(max_chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, schema: Option<Value>) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            input_schema: schema,
            ..ToolDefinition::default()
        }
    }

    #[test]
    fn a_name_that_is_not_allowed_is_changed_and_found_again() {
        let tools = ["files/read", "files_read", "time"].map(|name| tool(name, None));
        let tools = WireTools::new(&tools, 64);

        assert_eq!(tools.to_wire("files/read"), "files_read_2");
        assert_eq!(tools.meant_by("files_read_2"), "files/read");
        assert_eq!(tools.meant_by("files_read"), "files_read");
        assert_eq!(tools.to_wire("time"), "time");
        assert_eq!(tools.to_wire("gone/tool"), "gone_tool");
        assert_eq!(tools.to_wire("7up"), "_7up");
    }

    #[test]
    fn a_schema_of_objects_stays_as_it_is() {
        let nullable = json!({ "type": ["object", "null"], "properties": { "n": {} } });

        assert_eq!(
            json!(parameters(&tool("a", None))),
            json!({ "type": "object", "properties": {} })
        );
        assert_eq!(
            json!(parameters(&tool("a", Some(json!({}))))),
            json!({ "type": "object" })
        );
        assert_eq!(
            json!(parameters(&tool("a", Some(nullable)))),
            json!({ "type": "object", "properties": { "n": {} } })
        );
    }

    #[test]
    fn any_other_schema_is_a_property_of_an_object() {
        for schema in [
            json!({ "type": "string" }),
            json!({ "type": "object", "oneOf": [{}, {}] }),
        ] {
            let expected = json!({
                "type": "object", "properties": { "input": schema }, "required": ["input"],
                "additionalProperties": false,
            });
            assert_eq!(json!(parameters(&tool("a", Some(schema)))), expected);
        }
    }

    #[test]
    fn references_are_found_at_their_new_place() {
        let tree = json!({
            "anyOf": [{ "$ref": "#/$defs/Leaf" }, { "type": "array", "items": { "$ref": "#" } }],
            "$defs": { "Leaf": { "type": "string" }, "Twig": { "$ref": "#/anyOf/1" } },
        });

        let moved = json!(parameters(&tool("a", Some(tree))));

        let input = "/properties/input/anyOf";
        assert_eq!(
            moved.pointer(&format!("{input}/0/$ref")),
            Some(&json!("#/$defs/Leaf"))
        );
        assert_eq!(
            moved.pointer(&format!("{input}/1/items/$ref")),
            Some(&json!("#/properties/input"))
        );
        assert_eq!(moved["$defs"]["Leaf"], json!({ "type": "string" }));
        assert_eq!(
            moved["$defs"]["Twig"],
            json!({ "$ref": "#/properties/input/anyOf/1" })
        );
    }

    #[test]
    fn the_input_of_a_wrapped_tool_is_taken_out_and_put_back() {
        let tools = WireTools::new(
            &[
                tool("shout", Some(json!({ "type": "string" }))),
                tool("look", None),
            ],
            64,
        );
        let call = ToolRequest::new("shout", "hi");

        assert_eq!(tools.input("shout", json!({ "input": "hi" })), "hi");
        assert_eq!(
            tools.input("shout", json!({ "text": "hi" })),
            json!({ "text": "hi" })
        );
        assert_eq!(tools.input("look", json!({ "input": 1 })), json!({ "input": 1 }));
        assert_eq!(tools.arguments(&call), json!({ "input": "hi" }));
        assert_eq!(tools.arguments_text(&call), r#"{"input":"hi"}"#);
        assert_eq!(tools.arguments_text(&ToolRequest::new("look", "{oops")), "{oops");
    }
}
