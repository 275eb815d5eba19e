//! Picoschema, the short notation for schemas in frontmatter, expanded to JSON Schema.
//!
//! `name: string, who it is` is a required property, `name?` an optional one that may be null,
//! `tags(array, labels): string`, `address(object): {...}` and `tier(enum): [free, pro]` say their type in
//! parentheses, and `(*): any` allows further properties. Any word other than a scalar type is the name of a
//! defined schema. A definition that already is JSON Schema stays unchanged.

use serde_json::{Map, Value, json};

use crate::error::{Error, ErrorKind};

const SCALARS: [&str; 6] = ["any", "boolean", "integer", "null", "number", "string"];
const WILDCARD: &str = "(*)";
/// The deepest nesting allowed: more than a person writes, and safe for the stack.
const MAX_DEPTH: usize = 64;

/// Expands a Picoschema definition to JSON Schema.
///
/// `resolve` returns the JSON Schema of a name, or `None` if it has none. A definition that is empty (null,
/// false or an empty string) expands to `None`.
///
/// ```
/// use serde_json::json;
///
/// let schema = dotprompt::picoschema(&json!({"name": "string", "age?": "integer, in years"}), |_| Ok(None))?;
///
/// let expected = json!({
///     "type": "object",
///     "properties": {
///         "name": {"type": "string"},
///         "age": {"type": ["integer", "null"], "description": "in years"},
///     },
///     "required": ["name"],
///     "additionalProperties": false,
/// });
/// assert_eq!(schema, Some(expected));
/// # Ok::<(), dotprompt::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::Schema`] if a rule of the notation is broken, [`ErrorKind::UnknownSchema`] if a name is not
/// known, and the error of `resolve`.
pub fn picoschema(
    definition: &Value,
    mut resolve: impl FnMut(&str) -> Result<Option<Value>, Error>,
) -> Result<Option<Value>, Error> {
    Expansion {
        resolve: &mut resolve,
        path: Vec::new(),
    }
    .expand(definition)
    .map_err(|(error, _)| error)
}

/// An error and the path of keys to its place in the definition.
pub(crate) type Misplaced = (Error, Vec<String>);

pub(crate) fn expand_located(
    definition: &Value,
    resolve: &mut dyn FnMut(&str) -> Result<Option<Value>, Error>,
) -> Result<Option<Value>, Misplaced> {
    Expansion {
        resolve,
        path: Vec::new(),
    }
    .expand(definition)
}

struct Expansion<'a> {
    resolve: &'a mut dyn FnMut(&str) -> Result<Option<Value>, Error>,
    path: Vec<String>,
}

impl Expansion<'_> {
    fn expand(&mut self, definition: &Value) -> Result<Option<Value>, Misplaced> {
        match definition {
            Value::Null | Value::Bool(false) => Ok(None),
            Value::String(text) if text.is_empty() => Ok(None),
            Value::String(text) => self.word(text, false).map(Some),
            Value::Object(object) if is_json_schema(object) => Ok(Some(definition.clone())),
            Value::Object(object) if object.get("properties").is_some_and(Value::is_object) => {
                let mut schema = object.clone();
                schema.insert("type".to_owned(), Value::from("object"));
                Ok(Some(Value::Object(schema)))
            }
            other => self.nested(other).map(Some),
        }
    }

    fn nested(&mut self, definition: &Value) -> Result<Value, Misplaced> {
        match definition {
            Value::String(text) => self.word(text, true),
            Value::Object(fields) => self.object(fields),
            // A key without a value is an object without properties.
            Value::Null => self.object(&Map::new()),
            other => Err(self.broken(format!(
                "expected a type or a mapping of properties, found {other}"
            ))),
        }
    }

    /// Expands `type`, `type, description`, or the name of a schema with or without a description.
    fn word(&mut self, text: &str, nested: bool) -> Result<Value, Misplaced> {
        let (name, description) = split_description(text);
        let mut schema = if !SCALARS.contains(&name) {
            self.named(name)?
        } else if nested && name == "any" {
            json!({})
        } else {
            json!({ "type": name })
        };
        describe(&mut schema, description);
        Ok(schema)
    }

    fn named(&mut self, name: &str) -> Result<Value, Misplaced> {
        match (self.resolve)(name) {
            Ok(Some(schema)) => Ok(schema),
            Ok(None) => Err((
                Error::new(ErrorKind::UnknownSchema(name.to_owned())),
                self.path.clone(),
            )),
            Err(error) => Err((error, self.path.clone())),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Result<Value, Misplaced> {
        if self.path.len() >= MAX_DEPTH {
            return Err(self.broken(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        let mut properties = Map::new();
        let mut required: Vec<&str> = Vec::new();
        let mut additional = Value::Bool(false);
        for (key, definition) in fields {
            self.path.push(key.clone());
            if key == WILDCARD {
                additional = self.nested(definition)?;
            } else {
                let (name, kind) = match key.split_once('(') {
                    Some((name, kind)) => (name, Some(kind)),
                    None => (key.as_str(), None),
                };
                let optional = name.ends_with('?');
                let name = name.strip_suffix('?').unwrap_or(name);
                if !optional && !required.contains(&name) {
                    required.push(name);
                }
                properties.insert(name.to_owned(), self.property(kind, optional, definition)?);
            }
            self.path.pop();
        }
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema["additionalProperties"] = additional;
        Ok(schema)
    }

    fn property(
        &mut self,
        kind: Option<&str>,
        optional: bool,
        definition: &Value,
    ) -> Result<Value, Misplaced> {
        let Some(kind) = kind else {
            let mut schema = self.nested(definition)?;
            allow_null(&mut schema, optional);
            return Ok(schema);
        };
        let Some(kind) = kind.strip_suffix(')') else {
            return Err(self.broken("the parenthesis in the key is not closed".to_owned()));
        };
        let (kind, description) = split_description(kind);
        let mut schema = match kind {
            "array" => json!({ "type": "array", "items": self.nested(definition)? }),
            "object" => self.nested(definition)?,
            "enum" => self.choice(definition, optional)?,
            other => {
                let message =
                    format!("the type in parentheses must be array, object or enum, found '{other}'");
                return Err(self.broken(message));
            }
        };
        if kind != "enum" {
            allow_null(&mut schema, optional);
        }
        describe(&mut schema, description);
        Ok(schema)
    }

    fn choice(&self, definition: &Value, optional: bool) -> Result<Value, Misplaced> {
        let Value::Array(values) = definition else {
            return Err(self.broken(format!("an enum needs a list of values, found {definition}")));
        };
        let mut values = values.clone();
        if optional && !values.contains(&Value::Null) {
            values.push(Value::Null);
        }
        Ok(json!({ "enum": values }))
    }

    fn broken(&self, message: String) -> Misplaced {
        let message = if self.path.is_empty() {
            message
        } else {
            format!("{}: {message}", self.path.join("."))
        };
        (Error::new(ErrorKind::Schema(message)), self.path.clone())
    }
}

fn is_json_schema(object: &Map<String, Value>) -> bool {
    let is_type = |name: &str| SCALARS.contains(&name) || name == "object" || name == "array";
    match object.get("type") {
        Some(Value::String(name)) => is_type(name),
        // The notation has no lists of types, but JSON Schema has, and nothing else can be meant.
        Some(Value::Array(names)) => {
            !names.is_empty() && names.iter().all(|name| name.as_str().is_some_and(is_type))
        }
        _ => false,
    }
}

fn split_description(text: &str) -> (&str, Option<&str>) {
    match text.split_once(',') {
        Some((name, description)) => (name, Some(description.trim_start_matches(' '))),
        None => (text, None),
    }
}

fn describe(schema: &mut Value, description: Option<&str>) {
    if let (Some(description), Value::Object(schema)) = (description.filter(|text| !text.is_empty()), schema)
    {
        schema.insert("description".to_owned(), Value::from(description));
    }
}

fn allow_null(schema: &mut Value, optional: bool) {
    if optional && let Some(kind) = schema.get_mut("type").filter(|kind| kind.is_string()) {
        // "null or null" would name one type twice, which JSON Schema forbids.
        if kind != "null" {
            *kind = json!([kind, "null"]);
        }
    }
}
