//! JSON Schemas: inferred from types, compiled once, checked where data enters.

use std::fmt;
use std::sync::{Arc, OnceLock};

use jsonschema::Validator;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{Error, Reason, Result};

/// How deeply nested a JSON value may be where it enters; the limit of the JSON parser itself.
pub const MAX_DEPTH: usize = 128;

/// How many violations one error names.
const MAX_REPORTED: usize = 5;

/// How much of one violation's text is kept: hostile input must not become a hostile message.
const MAX_VIOLATION_CHARS: usize = 240;

/// A JSON Schema, cheap to clone, compiled on first use.
#[derive(Clone)]
pub struct Schema(Arc<Inner>);

struct Inner {
    json: Value,
    validator: OnceLock<Result<Validator>>,
}

impl Schema {
    /// The schema of a Rust type, with subschemas inlined so that it can be handed to a model as it is.
    pub fn of<T: JsonSchema + ?Sized>() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let schema = settings.into_generator().into_root_schema_for::<T>();
        Self::unchecked(schema.to_value())
    }

    /// A schema written as JSON.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not a valid JSON Schema, or refers outside itself.
    pub fn from_json(json: Value) -> Result<Self> {
        let schema = Self::unchecked(json);
        schema.validator()?;
        Ok(schema)
    }

    fn unchecked(json: Value) -> Self {
        Self(Arc::new(Inner { json, validator: OnceLock::new() }))
    }

    /// The schema that accepts everything.
    pub fn any() -> Self {
        Self::unchecked(Value::Object(serde_json::Map::new()))
    }

    /// The schema as JSON.
    pub fn as_json(&self) -> &Value {
        &self.0.json
    }

    fn validator(&self) -> Result<&Validator> {
        let compiled = self.0.validator.get_or_init(|| {
            jsonschema::validator_for(&self.0.json).map_err(|error| {
                Error::invalid_argument(format!("not a valid JSON Schema: {}", error.masked()))
                    .with_reason(Reason::INVALID_SCHEMA)
            })
        });
        compiled.as_ref().map_err(Clone::clone)
    }

    /// Checks a value.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` whose message names the JSON pointer of each violation (the first few) and never repeats the
    /// offending value; `details.errors` lists the same as `{path, message}`. A value nested deeper than [`MAX_DEPTH`]
    /// is refused before it is looked at.
    pub fn validate(&self, value: &Value) -> Result<()> {
        check_depth(value)?;
        let validator = self.validator()?;
        if validator.is_valid(value) {
            return Ok(());
        }
        let violations: Vec<(String, String)> = validator
            .iter_errors(value)
            .take(MAX_REPORTED)
            .map(|error| (error.instance_path().to_string(), clip(error.masked().to_string())))
            .collect();
        let message = violations
            .iter()
            .map(|(path, message)| format!("at '{path}': {message}"))
            .collect::<Vec<_>>()
            .join("; ");
        let errors: Vec<Value> = violations
            .into_iter()
            .map(|(path, message)| serde_json::json!({ "path": path, "message": message }))
            .collect();
        Err(Error::invalid_argument(message).with_details(serde_json::json!({ "errors": errors })))
    }
}

/// Refuses a value nested deeper than [`MAX_DEPTH`], without recursing itself.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn check_depth(value: &Value) -> Result<()> {
    let mut open = vec![(value, 0_usize)];
    while let Some((value, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(Error::invalid_argument(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => open.extend(members.values().map(|member| (member, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

fn clip(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(MAX_VIOLATION_CHARS) {
        message.truncate(end);
        message.push('…');
    }
    message
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.json.fmt(f)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.0.json == other.0.json
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.json.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Status;

    #[derive(JsonSchema)]
    #[schemars(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Order {
        dish: String,
        guests: u8,
        sides: Vec<Side>,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Side {
        name: String,
    }

    fn violation(value: &Value) -> String {
        let error = Schema::of::<Order>().validate(value).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        error.message().to_owned()
    }

    #[test]
    fn a_violation_names_the_pointer() {
        let message = violation(&json!({"dish": "soup", "guests": 2, "sides": [{"name": 7}]}));

        assert!(message.contains("at '/sides/0/name'"), "{message}");
    }

    #[test]
    fn missing_and_unknown_fields_are_named() {
        let missing = violation(&json!({"dish": "soup", "guests": 2}));
        let unknown = violation(&json!({"dish": "soup", "guests": 2, "sides": [], "wine": true}));

        assert!(missing.contains("sides"), "{missing}");
        assert!(unknown.contains("wine"), "{unknown}");
    }

    #[test]
    fn a_huge_value_does_not_make_a_huge_message() {
        let huge = "x".repeat(10_000_000);

        let wrong_type = violation(&json!({"dish": "soup", "guests": huge, "sides": []}));
        let wrong_field = violation(&json!({"dish": "soup", "guests": 1, "sides": [], huge.as_str(): 1}));

        assert!(wrong_type.len() < 2_000, "{}", wrong_type.len());
        assert!(wrong_field.len() < 2_000, "{}", wrong_field.len());
    }

    #[test]
    fn deep_nesting_is_refused_before_validation() {
        let deep = (0..10_000).fold(Value::Null, |inner, _| json!([inner]));

        let error = Schema::any().validate(&deep).unwrap_err();

        assert!(error.message().contains("nested deeper"), "{error}");
        // serde_json drops recursively; a value of this depth is within a test thread's stack.
    }

    #[test]
    fn a_broken_schema_is_refused() {
        let error = Schema::from_json(json!({"type": "no-such-type"})).unwrap_err();

        assert!(error.is(Reason::INVALID_SCHEMA), "{error}");
    }

    #[test]
    fn a_schema_may_not_reach_outside_itself() {
        let outside = json!({"$ref": "https://example.com/schema.json"});

        assert!(Schema::from_json(outside).is_err());
    }
}
