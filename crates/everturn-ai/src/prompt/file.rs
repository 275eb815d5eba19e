//! Parsing a `.prompt` file, and the keys that its frontmatter may have.

use std::sync::Arc;

use dotprompt::ParsedPrompt;
use everturn_core::{Error, Registry, Schema};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Mistakes;
use super::definition::{CompiledMessages, Parts, Settings};
use super::library::{compiler, template_error};
use crate::{
    GenerateActionOutputConfig, JsonObject, MiddlewareRef, MiddlewareSource, ModelReference, ToolReference,
};

/// Parses a prompt from the source of its file. Mistakes are added with `name` and `file`. Parts are returned
/// despite mistakes where possible, so that more mistakes are found in them.
pub(super) fn parse(
    registry: &Registry,
    name: &str,
    variant: Option<&str>,
    file: &str,
    source: &str,
    mistakes: &mut Mistakes,
) -> Option<Parts> {
    let dotprompt = compiler(registry);
    let parsed = dotprompt.parse_named(file, source);
    // Without this check the whole file would be the template, and the model would receive the frontmatter.
    if let Some(error) = parsed.frontmatter_error() {
        mistakes.add(template_error(name, error.clone()));
        return None;
    }
    for unknown in unknown_keys(&parsed) {
        mistakes.add(Error::invalid_argument(format!("prompt '{name}': {unknown}")));
    }
    let compiled = dotprompt.compile_named(file, source);
    let compiled = compiled
        .map_err(|error| mistakes.add(template_error(name, error)))
        .ok()?;
    for error in compiled.unknown_partials() {
        mistakes.add(template_error(name, error));
    }
    let metadata = compiled.metadata();
    let metadata = metadata
        .map_err(|error| mistakes.add(template_error(name, error)))
        .ok()?;
    let raw = metadata.raw().cloned().unwrap_or_default();
    let mut read = Frontmatter {
        name,
        raw: &raw,
        parsed: &parsed,
        mistakes,
    };

    let middleware: Vec<Use> = read.key("use").unwrap_or_default();
    let settings = Settings {
        description: metadata.description().map(str::to_owned),
        model: metadata.model().map(ModelReference::from),
        config: metadata
            .config()
            .filter(|config| !config.is_empty())
            .cloned()
            .map(Value::Object),
        tools: metadata
            .tools()
            .map(|tool| ToolReference::Name(tool.to_owned()))
            .collect(),
        // The format does not define these keys, so they are read from the raw frontmatter.
        tool_choice: read.key("toolChoice"),
        max_rounds: read.key("maxTurns"),
        return_tool_requests: read.key("returnToolRequests"),
        output: GenerateActionOutputConfig {
            format: metadata.output_format().map(str::to_owned),
            json_schema: metadata.output_schema().cloned(),
            ..GenerateActionOutputConfig::default()
        },
        docs: Vec::new(),
        middleware: middleware
            .into_iter()
            .map(|entry| MiddlewareSource::named(entry.reference()))
            .collect(),
        input_schema: metadata
            .input_schema()
            .cloned()
            .and_then(|schema| read.noted("input", Schema::from_json(schema))),
        input_default: metadata.input_default().cloned(),
        metadata: read.key("metadata").unwrap_or_default(),
        variant: variant.map(str::to_owned),
        template: Some(compiled.parsed().template().to_owned()),
    };
    Some(Parts {
        settings: Arc::new(settings),
        system: None,
        // A file is one template for all messages, with roles inside it.
        messages: Some(CompiledMessages::Template(compiled)),
        prompt: None,
    })
}

/// The keys of a frontmatter that are not part of the dotprompt format.
struct Frontmatter<'a> {
    name: &'a str,
    raw: &'a JsonObject,
    parsed: &'a ParsedPrompt,
    mistakes: &'a mut Mistakes,
}

impl Frontmatter<'_> {
    fn key<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        let value = self.raw.get(key).filter(|value| !value.is_null())?;
        self.noted(key, T::deserialize(value))
    }

    /// Returns the value of a key, or adds the mistake in it.
    fn noted<T, E: std::fmt::Display>(&mut self, key: &str, value: Result<T, E>) -> Option<T> {
        let note = |error: E| {
            let error = Error::invalid_argument(format!("'{key}': {error}"));
            let error = match self.parsed.locate(&[key]) {
                Some(place) => error.context(place),
                None => error,
            };
            self.mistakes
                .add(error.context(format_args!("prompt '{}'", self.name)));
        };
        value.map_err(note).ok()
    }
}

/// An entry of `use`: a name, or a name with a configuration.
#[derive(Deserialize)]
#[serde(untagged)]
enum Use {
    Name(String),
    Reference(MiddlewareRef),
}

impl Use {
    fn reference(self) -> MiddlewareRef {
        match self {
            Self::Name(name) => MiddlewareRef::new(name),
            Self::Reference(reference) => reference,
        }
    }
}

/// The keys at the top, those of the format and those of this framework. Others are allowed with a dot:
/// `my.key`.
const KEYS: [&str; 17] = [
    "config",
    "description",
    "ext",
    "input",
    "maxTurns",
    "metadata",
    "model",
    "name",
    "output",
    "raw",
    "returnToolRequests",
    "toolChoice",
    "toolDefs",
    "tools",
    "use",
    "variant",
    "version",
];

/// The keys inside those that hold keys of the format.
const NESTED: [(&str, &[&str]); 2] = [
    ("input", &["default", "schema"]),
    ("output", &["format", "schema"]),
];

/// Returns a message for each unused key, with its location.
pub(super) fn unknown_keys(parsed: &ParsedPrompt) -> Vec<String> {
    let Some(written) = parsed.metadata().raw() else {
        return Vec::new();
    };
    let mut unknown = Vec::new();
    for key in written.keys().filter(|key| !key.contains('.')) {
        if !KEYS.contains(&key.as_str()) {
            unknown.push(describe(parsed, &[key], &KEYS));
        }
    }
    for (outer, known) in NESTED {
        let Some(inner) = written.get(outer).and_then(Value::as_object) else {
            continue;
        };
        for key in inner.keys().filter(|key| !known.contains(&key.as_str())) {
            unknown.push(describe(parsed, &[outer, key], known));
        }
    }
    unknown
}

fn describe(parsed: &ParsedPrompt, path: &[&str], known: &[&str]) -> String {
    let key = path.join(".");
    let last = path.last().copied().unwrap_or_default();
    let advice = match closest(last, known) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("known are {}", known.join(", ")),
    };
    let advice = match path {
        [_] => format!("{advice} Keys of your own have a dot, as in 'my.{key}'"),
        _ => advice,
    };
    match parsed.locate(path) {
        Some(place) => format!("{place}: unknown key '{key}': {advice}"),
        None => format!("unknown key '{key}': {advice}"),
    }
}

/// Returns the known key that was probably meant: at most two edits away, where a transposition counts as
/// two.
fn closest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let distances = known.iter().map(|key| (distance(written, key), *key));
    distances
        .filter(|(distance, _)| *distance <= 2)
        .min()
        .map(|(_, key)| key)
}

/// The edit distance, ignoring case.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(!letter.eq_ignore_ascii_case(other));
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_nearly_right_is_recognised() {
        assert_eq!(closest("modle", &KEYS), Some("model"));
        assert_eq!(closest("Tools", &KEYS), Some("tools"));
        assert_eq!(closest("maxturn", &KEYS), Some("maxTurns"));
        assert_eq!(closest("temperature", &KEYS), None);
    }

    #[test]
    fn the_distance_counts_changed_letters() {
        for (one, other, changes) in [
            ("use", "use", 0),
            ("", "use", 3),
            ("usee", "use", 1),
            ("modle", "model", 2),
        ] {
            assert_eq!(distance(one, other), changes, "{one} {other}");
        }
    }
}
