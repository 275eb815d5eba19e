//! Sample values of a schema.

use everturn_ai::ModelRequest;
use serde_json::{Map, Value, json};

use super::input::Input;
use super::text::last_user_text;

/// The depth of a sample; a schema may refer to itself.
const MAX_DEPTH: usize = 8;

/// Returns the structured output for a request; `None` if it asks for text.
pub(super) fn output(request: &ModelRequest) -> Option<String> {
    let output = request.output.as_ref()?;
    let format = output.format.as_deref();
    let is_structured = matches!(format, Some("json" | "array" | "jsonl" | "enum"));
    let schema = match (&output.schema, is_structured) {
        (Some(schema), _) if format != Some("text") => schema.clone(),
        (None, true) => json!({"type": "object"}),
        _ => return None,
    };
    let value = sample(&schema, &mut Input::of(&last_user_text(request)));
    Some(match (format, value) {
        (Some("jsonl"), Value::Array(items)) => lines(&items),
        (Some("enum"), Value::String(choice)) => choice,
        (_, value) => value.to_string(),
    })
}

fn lines(items: &[Value]) -> String {
    let lines: Vec<String> = items.iter().map(Value::to_string).collect();
    lines.join("\n")
}

/// Returns a value of the schema's shape, with texts and numbers from the message where possible.
pub(super) fn sample(schema: &Value, input: &mut Input) -> Value {
    Sampler { root: schema, input }.value(schema, 0)
}

struct Sampler<'a> {
    root: &'a Value,
    input: &'a mut Input,
}

impl Sampler<'_> {
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if let Some(fixed) = schema.get("const").or_else(|| schema.get("default")) {
            return fixed.clone();
        }
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            return self.choice(choices);
        }
        if depth > MAX_DEPTH {
            return Value::Null;
        }
        if let Some(target) = self.referred(schema) {
            return self.value(&target, depth + 1);
        }
        for alternatives in ["anyOf", "oneOf"] {
            if let Some(alternatives) = schema.get(alternatives).and_then(Value::as_array) {
                let first = alternatives.iter().find(|one| kind(one) != Some("null"));
                return first.map_or(Value::Null, |one| self.value(one, depth + 1));
            }
        }
        if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
            return self.merged(all, depth);
        }
        match kind(schema) {
            Some("object") => self.object(schema, depth),
            Some("array") => self.array(schema, depth),
            Some("string") => Value::String(self.text(schema)),
            Some("integer") => number(schema, self.input.next_number().map(f64::trunc), true),
            Some("number") => number(schema, self.input.next_number(), false),
            Some("boolean") => Value::Bool(true),
            _ => Value::Null,
        }
    }

    fn referred(&self, schema: &Value) -> Option<Value> {
        let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer).cloned()
    }

    fn choice(&self, choices: &[Value]) -> Value {
        let is_mentioned =
            |choice: &&Value| choice.as_str().is_some_and(|choice| self.input.mentions(choice));
        choices
            .iter()
            .find(is_mentioned)
            .or(choices.first())
            .cloned()
            .unwrap_or_default()
    }

    fn merged(&mut self, schemas: &[Value], depth: usize) -> Value {
        let mut members = Map::new();
        for schema in schemas {
            match self.value(schema, depth + 1) {
                Value::Object(more) => members.extend(more),
                Value::Null => {}
                value => return value,
            }
        }
        Value::Object(members)
    }

    /// Fills in required members only.
    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let required = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let members = required.filter_map(Value::as_str).map(|name| {
            let property = schema
                .get("properties")
                .and_then(|properties| properties.get(name));
            let value = property.map_or(Value::Null, |property| self.value(property, depth + 1));
            (name.to_owned(), value)
        });
        Value::Object(members.collect())
    }

    fn array(&mut self, schema: &Value, depth: usize) -> Value {
        let limit = |name: &str| schema.get(name).and_then(Value::as_u64);
        let count = limit("minItems")
            .unwrap_or(1)
            .min(limit("maxItems").unwrap_or(u64::MAX))
            .min(16);
        if let Some(items) = schema.get("prefixItems").and_then(Value::as_array) {
            return items.iter().map(|item| self.value(item, depth + 1)).collect();
        }
        let any = json!({"type": "string"});
        let item = schema.get("items").unwrap_or(&any);
        (0..count).map(|_| self.value(item, depth + 1)).collect()
    }

    fn text(&self, schema: &Value) -> String {
        let subject = self.input.subject();
        let text = match schema.get("format").and_then(Value::as_str) {
            Some("date") => "2000-01-01",
            Some("time") => "12:00:00Z",
            Some("date-time") => "2000-01-01T12:00:00Z",
            Some("email") => "somebody@example.com",
            Some("uri" | "url") => "https://example.com/",
            Some("uuid") => "00000000-0000-4000-8000-000000000000",
            _ => &subject,
        };
        let length = |name: &str| {
            schema
                .get(name)
                .and_then(Value::as_u64)
                .and_then(|n| usize::try_from(n).ok())
        };
        let padding = length("minLength")
            .unwrap_or(0)
            .saturating_sub(text.chars().count());
        let padded = text.chars().chain(std::iter::repeat_n('.', padding));
        padded.take(length("maxLength").unwrap_or(usize::MAX)).collect()
    }
}

/// Returns the type that a schema names, or else implies.
fn kind(schema: &Value) -> Option<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => Some(kind),
        Some(Value::Array(kinds)) => kinds
            .iter()
            .filter_map(Value::as_str)
            .find(|kind| *kind != "null"),
        _ if schema.get("properties").is_some() => Some("object"),
        _ if schema.get("items").is_some() => Some("array"),
        _ => None,
    }
}

fn number(schema: &Value, offered: Option<f64>, is_integer: bool) -> Value {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let step = if is_integer { 1.0 } else { f64::EPSILON };
    let lowest = bound("minimum").or_else(|| bound("exclusiveMinimum").map(|bound| bound + step));
    let highest = bound("maximum").or_else(|| bound("exclusiveMaximum").map(|bound| bound - step));
    let number = offered
        .unwrap_or(1.0)
        .max(lowest.unwrap_or(f64::MIN))
        .min(highest.unwrap_or(f64::MAX));
    if is_integer {
        // A float that large has no fraction, and `as` saturates at the ends of the range.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the bounds of an integer type are whole numbers"
        )]
        return Value::from(number as i64);
    }
    Value::from(number)
}

#[cfg(test)]
mod tests {
    use everturn_core::Schema;
    use schemars::JsonSchema;

    use super::*;

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Menu {
        title: String,
        guests: u8,
        price: f64,
        vegan: bool,
        style: Style,
        dishes: Vec<Dish>,
        note: Option<String>,
        pair: (String, u16),
    }

    #[derive(JsonSchema)]
    #[schemars(rename_all = "lowercase")]
    #[expect(dead_code, reason = "only its schema matters")]
    enum Style {
        Plain,
        Festive,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    enum Dish {
        Soup { of: String },
        Bread,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Tree {
        branches: Vec<Tree>,
    }

    #[test]
    fn a_sample_fits_its_schema() {
        let schema = Schema::of::<Menu>();

        let menu = sample(schema.as_json(), &mut Input::of("A festive menu for 300 people"));

        schema.validate(&menu).unwrap();
        assert_eq!(menu["style"], "festive");
        assert_eq!(menu["guests"], 255);
        assert_eq!(menu["title"], "300 people");
        assert_eq!(menu.get("note"), None);
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let tree = sample(Schema::of::<Tree>().as_json(), &mut Input::of(""));

        assert!(tree["branches"].is_array());
    }

    #[test]
    fn limits_on_texts_are_kept() {
        let schema = json!({"type": "string", "minLength": 3, "maxLength": 5});

        assert_eq!(sample(&schema, &mut Input::of("a")), "a..");
        assert_eq!(sample(&schema, &mut Input::of("artichoke")), "artic");
    }
}
