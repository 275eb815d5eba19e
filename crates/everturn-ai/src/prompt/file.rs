//! Parsing a `.prompt` file.

use std::sync::Arc;

use everturn_core::{Error, Registry, Result, Schema};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::definition::{CompiledMessages, Parts, Settings};
use super::library::{compiler, template_error};
use crate::{
    GenerateActionOutputConfig, JsonObject, MiddlewareRef, MiddlewareSource, ModelReference, ToolReference,
};

/// Parses a prompt from the source of its file. Errors mention `name` and `file`.
pub(super) fn parse(
    registry: &Registry,
    name: &str,
    variant: Option<&str>,
    file: &str,
    source: &str,
) -> Result<Parts> {
    let compiled = compiler(registry)
        .compile_named(file, source)
        .map_err(|error| template_error(name, error))?;
    // The format demands this leniency; without the warning the mistake would go unnoticed.
    if let Some(error) = compiled.parsed().frontmatter_error() {
        tracing::warn!(prompt = name, "{error}; the whole file is taken as the template");
    }
    let metadata = compiled.metadata().map_err(|error| template_error(name, error))?;
    let raw = metadata.raw().cloned().unwrap_or_default();
    let read = Frontmatter { name, raw: &raw };

    let middleware: Vec<Use> = read.key("use")?.unwrap_or_default();
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
        tool_choice: read.key("toolChoice")?,
        max_rounds: read.key("maxTurns")?,
        return_tool_requests: read.key("returnToolRequests")?,
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
            .map(Schema::from_json)
            .transpose()?,
        input_default: metadata.input_default().cloned(),
        metadata: read.key("metadata")?.unwrap_or_default(),
        variant: variant.map(str::to_owned),
        template: Some(compiled.parsed().template().to_owned()),
    };
    Ok(Parts {
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
}

impl Frontmatter<'_> {
    fn key<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.raw.get(key).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let read = T::deserialize(value).map(Some);
        read.map_err(|error| Error::invalid_argument(format!("prompt '{}': '{key}': {error}", self.name)))
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
