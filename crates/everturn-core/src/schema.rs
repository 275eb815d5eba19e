//! JSON Schemas: inferred from types, compiled once, checked where data enters.

mod from_client;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, ValidationError, Validator};
use parking_lot::Mutex;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{Error, Reason, Result};

/// The deepest nesting allowed in a JSON value from outside; also the limit of the JSON parser itself.
pub const MAX_DEPTH: usize = 128;

/// The largest number of violations that one error names.
const MAX_REPORTED: usize = 5;

/// The largest input, in values, whose violations are all searched for. The validator collects every
/// violation before it returns any, so for a larger input the search stops at the first one.
const MAX_SEARCHED: usize = 10_000;

/// The length to which a violation's text and pointer are clipped, so that hostile input cannot make a huge
/// message.
const MAX_VIOLATION_CHARS: usize = 240;

/// The largest compiled size of a regular expression, and the most backtracking steps of one match.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;
const MAX_BACKTRACKS: usize = 100_000;

/// A JSON Schema, cheap to clone, described and compiled on first use.
#[derive(Clone)]
pub struct Schema(Arc<Inner>);

struct Inner {
    json: Json,
    validator: OnceLock<Result<Validator>>,
}

enum Json {
    Given(Value),
    /// Described when it is first used: an application defines many actions whose types are never validated
    /// or listed, and describing them would take most of the time until its first turn.
    OfType {
        describe: fn() -> Value,
        described: OnceLock<Value>,
    },
}

impl Schema {
    /// Returns the schema of a Rust type, with subschemas inlined, as models expect it.
    pub fn of<T: JsonSchema + ?Sized>() -> Self {
        Self::described_by(describe::<T>)
    }

    /// Returns the schema of a Rust type like [`Schema::of`], cached per type: a type that many actions use
    /// is described and compiled once per program.
    pub fn shared<T: JsonSchema + ?Sized + 'static>() -> Self {
        Self::kept((TypeId::of::<T>(), false), Self::of::<T>)
    }

    /// Like [`Schema::shared`], without the prohibitions of unknown fields: stored data may hold fields of
    /// other versions.
    pub fn lenient<T: JsonSchema + ?Sized + 'static>() -> Self {
        let describe = || {
            let mut json = Self::shared::<T>().as_json().clone();
            admit_unknown_fields(&mut json);
            json
        };
        Self::kept((TypeId::of::<T>(), true), || Self::described_by(describe))
    }

    fn kept(key: (TypeId, bool), make: impl FnOnce() -> Self) -> Self {
        /// The schemas of types, and whether they are lenient.
        static KEPT: Mutex<BTreeMap<(TypeId, bool), Schema>> = Mutex::new(BTreeMap::new());
        let mut kept = KEPT.lock();
        kept.entry(key).or_insert_with(make).clone()
    }

    /// Creates a schema from its JSON.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not a valid JSON Schema, or refers outside itself.
    pub fn from_json(json: Value) -> Result<Self> {
        let schema = Self::unchecked(json);
        schema.validator()?;
        Ok(schema)
    }

    fn unchecked(json: Value) -> Self {
        Self::having(Json::Given(json))
    }

    /// Creates the schema of a type, which a function describes.
    fn described_by(describe: fn() -> Value) -> Self {
        Self::having(Json::OfType {
            describe,
            described: OnceLock::new(),
        })
    }

    fn having(json: Json) -> Self {
        Self(Arc::new(Inner {
            json,
            validator: OnceLock::new(),
        }))
    }

    /// Returns the schema that accepts every value.
    pub fn any() -> Self {
        Self::unchecked(Value::Object(serde_json::Map::new()))
    }

    /// Returns the schema as JSON.
    pub fn as_json(&self) -> &Value {
        match &self.0.json {
            Json::Given(json) => json,
            Json::OfType { describe, described } => described.get().unwrap_or_else(|| {
                // Describing runs the type's own code, so no lock is held during it.
                let json = describe();
                described.get_or_init(|| json)
            }),
        }
    }

    fn validator(&self) -> Result<&Validator> {
        let json = self.as_json();
        let compiled = self.0.validator.get_or_init(|| {
            let patterns = PatternOptions::fancy_regex()
                .size_limit(MAX_PATTERN_BYTES)
                .dfa_size_limit(MAX_PATTERN_BYTES)
                .backtrack_limit(MAX_BACKTRACKS);
            let compiled = jsonschema::options().with_pattern_options(patterns).build(json);
            compiled.map_err(|error| {
                Error::invalid_argument(format!("not a valid JSON Schema: {}", error.masked()))
                    .with_reason(Reason::INVALID_SCHEMA)
            })
        });
        compiled.as_ref().map_err(Clone::clone)
    }

    /// Validates a value against the schema.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` whose message names the JSON pointer of each violation (the first few) and never
    /// repeats the offending value; `details.errors` lists the same as `{path, message}`. A value nested
    /// deeper than [`MAX_DEPTH`] is refused before it is validated.
    pub fn validate(&self, value: &Value) -> Result<()> {
        self.check(value, Size::of(value)?)
    }

    /// Validates a value whose size is already measured.
    pub(crate) fn check(&self, value: &Value, size: Size) -> Result<()> {
        let validator = self.validator()?;
        if validator.is_valid(value) {
            return Ok(());
        }
        let violation = |error: ValidationError<'_>| {
            Violation::new(error.instance_path().to_string(), error.masked().to_string())
        };
        Err(if size.values <= MAX_SEARCHED {
            Violation::error(validator.iter_errors(value).take(MAX_REPORTED).map(violation))
        } else {
            Violation::error(validator.validate(value).err().map(violation))
        })
    }
}

/// Describes a Rust type, with subschemas inlined.
fn describe<T: JsonSchema + ?Sized>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Takes the prohibitions of unknown fields out of a schema.
fn admit_unknown_fields(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("additionalProperties") == Some(&Value::Bool(false)) {
                members.shift_remove("additionalProperties");
            }
            members.values_mut().for_each(admit_unknown_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(admit_unknown_fields),
        _ => {}
    }
}

/// One mismatch between a value and its schema, with its JSON pointer.
pub(crate) struct Violation {
    path: String,
    message: String,
}

impl Violation {
    pub(crate) fn new(path: String, message: String) -> Self {
        Self {
            path: clip(path),
            message: clip(message),
        }
    }

    /// Creates the error that names all the violations.
    pub(crate) fn error(violations: impl IntoIterator<Item = Self>) -> Error {
        let (messages, errors): (Vec<_>, Vec<_>) = violations
            .into_iter()
            .map(|Self { path, message }| {
                (
                    format!("at '{path}': {message}"),
                    serde_json::json!({ "path": path, "message": message }),
                )
            })
            .unzip();
        Error::invalid_argument(messages.join("; ")).with_details(serde_json::json!({ "errors": errors }))
    }
}

/// The size of a value whose depth is within [`MAX_DEPTH`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    values: usize,
}

impl Size {
    /// Measures a value.
    pub(crate) fn of(value: &Value) -> Result<Self> {
        let mut values = 0;
        let visited = visit(value, |_| {
            values += 1;
            ControlFlow::Continue(())
        });
        if visited.is_break() {
            return Err(Error::invalid_argument(format!(
                "nested deeper than {MAX_DEPTH} levels"
            )));
        }
        Ok(Self { values })
    }
}

/// Visits a value and its members, until `visitor` breaks off or a value is nested deeper than [`MAX_DEPTH`].
pub(crate) fn visit(value: &Value, mut visitor: impl FnMut(&Value) -> ControlFlow<()>) -> ControlFlow<()> {
    visit_levels(value, MAX_DEPTH, &mut visitor)
}

/// Visits a value recursively, up to a number of levels.
fn visit_levels(
    value: &Value,
    levels: usize,
    visitor: &mut impl FnMut(&Value) -> ControlFlow<()>,
) -> ControlFlow<()> {
    visitor(value)?;
    match (value, levels.checked_sub(1)) {
        (Value::Array(_) | Value::Object(_), None) => ControlFlow::Break(()),
        (Value::Array(items), Some(levels)) => {
            let mut items = items.iter();
            items.try_for_each(|item| visit_levels(item, levels, visitor))
        }
        (Value::Object(fields), Some(levels)) => {
            let mut values = fields.values();
            values.try_for_each(|value| visit_levels(value, levels, visitor))
        }
        _ => ControlFlow::Continue(()),
    }
}

/// Refuses a value nested deeper than [`MAX_DEPTH`], in a recursion that goes no deeper.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn check_depth(value: &Value) -> Result<()> {
    Size::of(value).map(|_| ())
}

/// Drops a value level by level. The default drop recurses, and a value that was rejected for its depth could
/// overflow the stack.
pub(crate) fn dismantle(value: Value) {
    // Without capacity at first: most values here were taken out of an `Untrusted` and are null.
    let mut open = Vec::new();
    let mut next = Some(value);
    while let Some(value) = next {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => open.extend(fields.into_values()),
            _ => {}
        }
        next = open.pop();
    }
}

/// A value of unknown depth. It is always dropped without recursion.
pub(crate) struct Untrusted(Value);

impl Untrusted {
    pub(crate) fn new(value: Value) -> Self {
        Self(value)
    }

    pub(crate) fn into_value(mut self) -> Value {
        self.0.take()
    }
}

impl Drop for Untrusted {
    fn drop(&mut self) {
        dismantle(self.0.take());
    }
}

fn clip(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_VIOLATION_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_json().fmt(f)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.as_json() == other.as_json()
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.as_json().serialize(serializer)
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
    fn a_type_has_one_schema_in_a_program_and_a_lenient_one() {
        let (one, other) = (Schema::shared::<Order>(), Schema::shared::<Order>());
        let lenient = Schema::lenient::<Order>();
        let unknown = json!({"dish": "soup", "guests": 2, "sides": [], "wine": true});

        assert!(Arc::ptr_eq(&one.0, &other.0));
        assert!(Arc::ptr_eq(&lenient.0, &Schema::lenient::<Order>().0));
        assert_eq!(one, Schema::of::<Order>());
        assert!(one.validate(&unknown).is_err());
        assert!(lenient.validate(&unknown).is_ok());
        assert!(lenient.validate(&json!({"dish": 7})).is_err());
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
    fn a_huge_pointer_is_clipped_too() {
        let huge = "x".repeat(10_000_000);
        let schema = Schema::of::<std::collections::HashMap<String, u8>>();

        let error = schema.validate(&json!({ huge: "soup" })).unwrap_err();

        assert!(error.message().len() < 2_000, "{}", error.message().len());
        assert!(error.details().unwrap().to_string().len() < 2_000);
    }

    #[test]
    fn a_large_input_full_of_mistakes_is_answered_with_the_first() {
        let schema = Schema::of::<Vec<u8>>();
        let mistakes = |count| Value::from(vec!["soup"; count]);
        let named = |value: &Value| {
            let error = schema.validate(value).unwrap_err();
            error.details().unwrap()["errors"].as_array().unwrap().len()
        };

        assert_eq!(named(&mistakes(MAX_SEARCHED - 1)), MAX_REPORTED);
        assert_eq!(named(&mistakes(MAX_SEARCHED)), 1);
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::Null, |inner, level| match level % 2 {
            0 => Value::Array(vec![inner]),
            _ => Value::Object(serde_json::Map::from_iter([("inner".to_owned(), inner)])),
        })
    }

    #[test]
    fn the_deepest_value_allowed_is_as_deep_as_the_parser_allows() {
        let (deepest, too_deep) = (nested(MAX_DEPTH), nested(MAX_DEPTH + 1));

        assert!(check_depth(&deepest).is_ok());
        assert!(check_depth(&too_deep).is_err());
        // The parser counts the level that it is about to enter, so its limit is one below this crate's.
        assert!(serde_json::from_str::<Value>(&nested(MAX_DEPTH - 1).to_string()).is_ok());
        assert!(serde_json::from_str::<Value>(&too_deep.to_string()).is_err());
    }

    #[test]
    fn a_hundred_thousand_levels_are_refused_and_dropped_on_an_ordinary_stack() {
        let deep = nested(100_000);

        let error = Schema::any().validate(&deep).unwrap_err();
        dismantle(deep);

        assert!(error.message().contains("nested deeper"), "{error}");
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
