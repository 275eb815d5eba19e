//! Parsing of the frontmatter's YAML into [`Metadata`].

use serde_json::{Map, Number, Value};
use yaml_serde::Value as Yaml;

use crate::metadata::Metadata;
use crate::position::Position;

/// The keys that the format itself defines. All others stay in `raw`, or in `ext` if they hold a dot.
const RESERVED: [&str; 12] = [
    "config",
    "description",
    "ext",
    "input",
    "model",
    "name",
    "output",
    "raw",
    "toolDefs",
    "tools",
    "variant",
    "version",
];

/// The deepest nesting allowed of lists and mappings.
const MAX_DEPTH: usize = 64;

/// Parses the frontmatter, or returns a message and the position of the mistake.
pub(crate) fn read(yaml: &str) -> Result<Metadata, (String, Position)> {
    if nests_too_deeply(yaml) {
        return Err((
            format!("nested more than {MAX_DEPTH} levels deep"),
            Position::START,
        ));
    }
    let value: Yaml = yaml_serde::from_str(yaml).map_err(|error| {
        let at = error.location().map_or(Position::START, |at| Position {
            line: at.line().max(1),
            column: at.column().max(1),
        });
        (error.to_string(), at)
    })?;
    match to_json(value) {
        Value::Object(raw) => Ok(sort_keys(raw)),
        Value::Null => Ok(sort_keys(Map::new())),
        _ => Err(("expected a mapping of keys to values".to_owned(), Position::START)),
    }
}

/// Returns whether lists or mappings are nested too deeply. The YAML parser would refuse them too, but only
/// after work that grows with the square of the depth.
fn nests_too_deeply(yaml: &str) -> bool {
    let mut brackets = 0_usize;
    for byte in yaml.bytes() {
        match byte {
            b'[' | b'{' => brackets += 1,
            b']' | b'}' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        if brackets > MAX_DEPTH {
            return true;
        }
    }
    yaml.lines().any(|line| {
        let is_indicator = |word: &&str| matches!(*word, "-" | "?");
        line.split_ascii_whitespace().take_while(is_indicator).count() > MAX_DEPTH
    })
}

fn sort_keys(raw: Map<String, Value>) -> Metadata {
    let mut metadata = Metadata::base().into_map();
    let mut ext = Map::new();
    for (key, value) in &raw {
        if RESERVED.contains(&key.as_str()) {
            metadata.insert(key.clone(), value.clone());
        } else if let Some((namespace, field)) = key.rsplit_once('.') {
            let fields = ext.entry(namespace).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(fields) = fields {
                fields.insert(field.to_owned(), value.clone());
            }
        }
    }
    metadata.insert("raw".to_owned(), Value::Object(raw));
    metadata.insert("ext".to_owned(), Value::Object(ext));
    Metadata::from(metadata)
}

/// Converts YAML to JSON. `yaml_serde` bounds the depth of its values, and so the recursion here.
fn to_json(value: Yaml) -> Value {
    match value {
        Yaml::Null => Value::Null,
        Yaml::Bool(value) => Value::Bool(value),
        Yaml::Number(number) => number_to_json(&number),
        Yaml::String(text) => Value::String(text),
        Yaml::Sequence(items) => items.into_iter().map(to_json).collect(),
        Yaml::Mapping(entries) => entries
            .into_iter()
            .map(|(key, value)| (key_to_text(key), to_json(value)))
            .collect(),
        Yaml::Tagged(tagged) => to_json(tagged.value),
    }
}

fn number_to_json(number: &yaml_serde::Number) -> Value {
    if let Some(number) = number.as_u64() {
        return Value::from(number);
    }
    if let Some(number) = number.as_i64() {
        return Value::from(number);
    }
    // JSON has no infinity and no NaN; JavaScript writes null for them.
    number
        .as_f64()
        .and_then(Number::from_f64)
        .map_or(Value::Null, Value::Number)
}

fn key_to_text(key: Yaml) -> String {
    match to_json(key) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Returns the offset of the last key of `path` that the text contains after the keys before it.
pub(crate) fn locate(yaml: &str, path: &[impl AsRef<str>]) -> usize {
    let mut found = 0;
    let mut from = 0;
    for key in path {
        let key = key.as_ref();
        let Some(at) = find_key(yaml, from, key) else {
            break;
        };
        found = at;
        from = at + key.len();
    }
    found
}

fn find_key(yaml: &str, from: usize, key: &str) -> Option<usize> {
    if key.is_empty() {
        return None;
    }
    yaml[from..]
        .match_indices(key)
        .map(|(at, _)| from + at)
        .find(|at| {
            let before = yaml[..*at].chars().next_back();
            let after = yaml[at + key.len()..].trim_start_matches(['"', '\'']);
            before.is_none_or(|c| c.is_whitespace() || "{[,\"'".contains(c))
                && (after.is_empty() || after.starts_with([':', ',', ']', '\r', '\n']))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reserved_keys_are_copied_and_dotted_keys_become_extensions() {
        let yaml = "model: m\nmaxTurns: 3\na.b: 1\na.b.c: 2\na.b.d: 3\n";

        let metadata = read(yaml).unwrap();

        let expected = json!({
            "ext": {"a": {"b": 1}, "a.b": {"c": 2, "d": 3}},
            "metadata": {},
            "config": {},
            "model": "m",
            "raw": {"model": "m", "maxTurns": 3, "a.b": 1, "a.b.c": 2, "a.b.d": 3},
        });
        assert_eq!(Value::Object(metadata.into_map()), expected);
    }

    #[test]
    fn values_that_json_lacks_become_what_javascript_makes_of_them() {
        let metadata = read("1: a\ntrue: b\ninf: .inf\ntagged: !x [1]\nword: yes\n").unwrap();

        let raw = json!({"1": "a", "true": "b", "inf": null, "tagged": [1], "word": "yes"});
        assert_eq!(metadata.raw(), raw.as_object());
    }

    #[test]
    fn a_comment_alone_is_an_empty_mapping_and_a_scalar_is_an_error() {
        assert!(read("# nothing").unwrap().raw().unwrap().is_empty());
        assert!(read("hello").is_err());
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut lines = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x]".to_owned()];
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 9].join(", ");
            lines.push(format!("a{level}: &a{level} [{items}]"));
        }
        let yaml = lines.join("\n");

        assert!(read(&yaml).is_err());
    }

    #[test]
    fn a_key_path_is_found_where_it_is_written() {
        let yaml = "input:\n  schema:\n    a: string\noutput:\n  schema:\n    a: nope\n";
        let path = ["output", "schema", "a"].map(str::to_owned);

        let offset = locate(yaml, &path);

        assert_eq!(
            Position::START.advance(yaml, offset),
            Position { line: 6, column: 5 }
        );
    }
}
