//! Limits on schemas that clients send: compiling and applying one must cost no more than its size suggests.

use std::collections::HashMap;

use serde_json::Value;

use super::Schema;
use crate::{Error, Reason, Result};

/// The deepest nesting of a client's schema.
const MAX_LEVELS: usize = 32;

/// The greatest number of JSON values in a client's schema, with each reference replaced by its target.
const MAX_VALUES: usize = 4_000;

/// The greatest number of references in a client's schema.
const MAX_REFERENCES: usize = 64;

/// The greatest number of regular expressions in a client's schema, and the greatest length of each.
const MAX_PATTERNS: usize = 16;
const MAX_PATTERN_BYTES: usize = 256;

impl Schema {
    /// Creates a schema from JSON that a client sent. It is compiled when it is first used.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not a valid JSON Schema, or exceeds a limit: `max_bytes` bytes of JSON, 32
    /// levels, 4,000 values, 64 references (`$ref`), 16 regular expressions of 256 bytes each. References
    /// must point to the schema's own parts (`#/$defs/…`), without a cycle.
    pub fn from_client(json: Value, max_bytes: usize) -> Result<Self> {
        let bytes = serde_json::to_vec(&json).map_or(usize::MAX, |text| text.len());
        if bytes > max_bytes {
            return Err(refused(format_args!(
                "it has {bytes} bytes and may have {max_bytes}"
            )));
        }
        let mut measure = Measure::new(&json);
        measure.expanded(&json, 0)?;
        jsonschema::meta::validate(&json).map_err(|error| refused(error.masked()))?;
        Ok(Self::unchecked(json))
    }
}

fn refused(why: impl std::fmt::Display) -> Error {
    Error::invalid_argument(format!("not an acceptable JSON Schema: {why}"))
        .with_reason(Reason::INVALID_SCHEMA)
}

/// Measures a schema as if its references were replaced by their targets.
struct Measure<'a> {
    root: &'a Value,
    references: usize,
    patterns: usize,
    /// The number of values behind each reference; `None` while it is being counted.
    known: HashMap<&'a str, Option<usize>>,
}

impl<'a> Measure<'a> {
    fn new(root: &'a Value) -> Self {
        Self {
            root,
            references: 0,
            patterns: 0,
            known: HashMap::new(),
        }
    }

    /// Returns the number of values of a part.
    fn expanded(&mut self, part: &'a Value, level: usize) -> Result<usize> {
        if level > MAX_LEVELS {
            return Err(refused(format_args!("it has more than {MAX_LEVELS} levels")));
        }
        let mut values = 1;
        match part {
            Value::Array(items) => {
                for item in items {
                    values = sum(values, self.expanded(item, level + 1)?)?;
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    values = sum(values, self.expanded(member, level + 1)?)?;
                    values = sum(values, self.behind(name, member, level)?)?;
                }
            }
            _ => {}
        }
        Ok(values)
    }

    /// Returns the number of values behind a member that refers to another part, and counts regular
    /// expressions.
    fn behind(&mut self, name: &str, member: &'a Value, level: usize) -> Result<usize> {
        match (name, member) {
            ("$ref", Value::String(target)) => self.referred(target, level),
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                Err(refused(format_args!("'{name}' is not supported")))
            }
            ("pattern", Value::String(pattern)) => self.pattern(pattern),
            ("patternProperties", Value::Object(members)) => {
                members.keys().try_fold(0, |_, pattern| self.pattern(pattern))
            }
            _ => Ok(0),
        }
    }

    fn referred(&mut self, target: &'a str, level: usize) -> Result<usize> {
        self.references += 1;
        if self.references > MAX_REFERENCES {
            return Err(refused(format_args!(
                "it has more than {MAX_REFERENCES} references"
            )));
        }
        match self.known.insert(target, None) {
            Some(Some(values)) => {
                self.known.insert(target, Some(values));
                return Ok(values);
            }
            Some(None) => {
                return Err(refused(format_args!(
                    "its references form a circle at '{target}'"
                )));
            }
            None => {}
        }
        let pointer = target.strip_prefix('#');
        let part = pointer.and_then(|pointer| self.root.pointer(pointer));
        let part = part.ok_or_else(|| {
            refused(format_args!(
                "'{target}' is not the place of one of its parts, such as '#/$defs/name'"
            ))
        })?;
        let values = self.expanded(part, level + 1)?;
        self.known.insert(target, Some(values));
        Ok(values)
    }

    fn pattern(&mut self, pattern: &str) -> Result<usize> {
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            return Err(refused(format_args!(
                "it has more than {MAX_PATTERNS} regular expressions"
            )));
        }
        if pattern.len() > MAX_PATTERN_BYTES {
            let bytes = pattern.len();
            return Err(refused(format_args!(
                "a regular expression has {bytes} bytes and may have {MAX_PATTERN_BYTES}"
            )));
        }
        Ok(0)
    }
}

fn sum(values: usize, more: usize) -> Result<usize> {
    match values.saturating_add(more) {
        sum if sum <= MAX_VALUES => Ok(sum),
        _ => Err(refused(format_args!(
            "it has more than {MAX_VALUES} values, with references replaced by their targets"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(schema: Value) -> String {
        let error = Schema::from_client(schema, 16 * 1024).unwrap_err();
        assert!(error.is(Reason::INVALID_SCHEMA), "{error}");
        error.message().to_owned()
    }

    #[test]
    fn an_ordinary_schema_is_accepted_and_compiled_when_it_is_used() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "to": { "$ref": "#/$defs/address" },
                "copies": { "type": "array", "items": { "$ref": "#/$defs/address" } },
            },
            "$defs": { "address": { "type": "string", "pattern": "^[^@]+@[^@]+$" } },
        });

        let schema = Schema::from_client(schema, 16 * 1024).unwrap();

        assert!(schema.0.validator.get().is_none());
        schema
            .validate(&json!({ "to": "a@b", "copies": ["c@d"] }))
            .unwrap();
        assert!(schema.validate(&json!({ "to": "nobody" })).is_err());
    }

    #[test]
    fn schemas_that_cost_more_than_they_are_long_are_refused() {
        let deep = (0..40).fold(json!({}), |inner, _| json!({ "items": inner }));
        let mut growing = json!({ "$ref": "#/$defs/d0", "$defs": { "d8": { "type": "string" } } });
        for level in 0..8 {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            growing["$defs"][format!("d{level}")] = json!({ "allOf": vec![next; 6] });
        }
        let references = vec![json!({ "$ref": "#/$defs/a" }); 65];
        let patterns = vec![json!({ "pattern": "a" }); 17];
        for (schema, why) in [
            (json!({ "description": "x".repeat(20_000) }), "bytes"),
            (deep, "levels"),
            (growing, "values"),
            (json!({ "anyOf": references, "$defs": { "a": {} } }), "references"),
            (json!({ "anyOf": patterns }), "regular expressions"),
            (json!({ "pattern": "a".repeat(257) }), "257 bytes"),
            (
                json!({ "patternProperties": { "a".repeat(257): {} } }),
                "257 bytes",
            ),
            (json!({ "$ref": "#" }), "circle"),
            (json!({ "properties": { "next": { "$ref": "#" } } }), "circle"),
            (
                json!({ "$ref": "https://example.com/schema.json" }),
                "is not the place",
            ),
            (json!({ "$ref": "#/$defs/missing" }), "is not the place"),
            (json!({ "$dynamicRef": "#a" }), "not supported"),
            (json!({ "type": "no-such-type" }), "acceptable"),
        ] {
            let message = refusal(schema);

            assert!(message.contains(why), "{why}: {message}");
        }
    }

    #[test]
    fn a_regular_expression_that_compiles_to_megabytes_is_an_error() {
        let schema = json!({ "pattern": "(((\\w{99}){99}){99}){99}" });

        let schema = Schema::from_client(schema, 16 * 1024).unwrap();

        assert!(
            schema
                .validate(&json!("a"))
                .unwrap_err()
                .is(Reason::INVALID_SCHEMA)
        );
    }
}
