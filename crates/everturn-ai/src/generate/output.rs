//! The requested output of a generation: resolving its format, and parsing it.

use std::fmt;
use std::sync::Arc;

use everturn_core::{Error, Reason, Registry, Result, Schema};
use serde_json::{Value, json};

use crate::format::{
    ChunkParser, Format, FormatConfig, FormatError, FormatHandler, builtin_formats, resolve_instructions,
};
use crate::{GenerateActionOutputConfig, Message, OutputConfig, extract_json, metadata};

/// A format name for providers only; there is nothing to parse.
const MEDIA: &str = "media";

/// The requested output of a generation, resolved once.
pub(super) struct OutputPlan {
    pub(super) config: OutputConfig,
    /// The initial instructions about the format for the model.
    pub(super) instructions: Option<String>,
    schema: Option<Schema>,
    handler: Option<Box<dyn FormatHandler>>,
}

impl OutputPlan {
    /// Resolves the format; a schema without a format means `json`.
    pub(super) fn resolve(registry: &Registry, asked: &GenerateActionOutputConfig) -> Result<Self> {
        let schema = asked.json_schema.clone().map(Schema::from_json).transpose()?;
        let name = asked
            .format
            .as_deref()
            .or_else(|| schema.is_some().then_some("json"));
        // Media is passed to the provider, and nothing is parsed.
        let Some(name) = name.filter(|&name| name != MEDIA) else {
            let config = FormatConfig::default().resolve(asked);
            return Ok(Self {
                config,
                instructions: None,
                schema,
                handler: None,
            });
        };
        let format = lookup_format(registry, name)?;
        let handler = format
            .handler(asked.json_schema.as_ref())
            .map_err(|error| Error::invalid_argument(error.to_string()).with_source(error))?;
        let defaults = format.config();
        let config = defaults.resolve(asked);
        let instructions = resolve_instructions(asked.instructions.as_ref(), &defaults, handler.as_ref());
        // If the provider does not enforce the schema, the model learns it only from the instructions.
        let needs_instructions = asked.instructions.is_none() && config.constrained == Some(false);
        let instructions =
            instructions.or_else(|| needs_instructions.then(|| handler.instructions()).flatten());
        Ok(Self {
            config,
            instructions,
            schema,
            handler: Some(handler),
        })
    }

    /// Checks that a finished message contains the requested output.
    pub(super) fn check(&self, message: &Message) -> Result<()> {
        let Some(handler) = &self.handler else {
            return Ok(());
        };
        let output = handler
            .parse_message(message)
            .map_err(|error| unreadable(&error))?;
        match &self.schema {
            Some(schema) => schema
                // A message without output is validated as null, so that a schema which allows null accepts
                // it.
                .validate(&output.unwrap_or_default())
                .map_err(|error| mismatch(&error)),
            None => Ok(()),
        }
    }

    /// Parses the output in a message: by the format, else from a data part, else from JSON in the text.
    pub(super) fn read(&self, message: &Message) -> Result<Option<Value>> {
        match &self.handler {
            Some(handler) => handler.parse_message(message).map_err(|error| unreadable(&error)),
            None => Ok(message.data().cloned().or_else(|| extract_json(&message.text()))),
        }
    }

    pub(super) fn chunk_parser(&self) -> Option<Box<dyn ChunkParser>> {
        self.handler.as_ref().map(|handler| handler.chunk_parser())
    }

    /// Records the requested output in the metadata of the model's message, so that a later reader of the
    /// history can parse it.
    pub(super) fn noted(&self, message: Message) -> Message {
        let OutputConfig {
            format, content_type, ..
        } = &self.config;
        if format.is_none() && content_type.is_none() {
            return message;
        }
        let mut output = json!({});
        for (key, value) in [("contentType", content_type), ("format", format)] {
            if let Some(value) = value {
                output[key] = value.as_str().into();
            }
        }
        message.with_metadata_entry(metadata::GENERATE, json!({ "output": output }))
    }
}

fn unreadable(error: &FormatError) -> Error {
    Error::internal(format!("the model's output cannot be read: {error}"))
        .with_reason(Reason::INVALID_OUTPUT)
        .with_source(error.clone())
}

/// The source of the error of an answer that does not match its schema.
#[derive(Debug)]
struct Mismatch;

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the answer is not the output that was asked for")
    }
}

impl std::error::Error for Mismatch {}

/// Returns whether an error of [`Generate`](crate::Generate) is about an answer that is not the requested
/// output. Errors about outputs of tools have the same reason and are not included.
pub fn is_unfit_answer(error: &Error) -> bool {
    error.find_source::<Mismatch>().is_some() || error.find_source::<FormatError>().is_some()
}

fn mismatch(error: &Error) -> Error {
    let mismatch = Error::internal(format!("the model's output does not match its schema: {error}"))
        .with_reason(Reason::INVALID_OUTPUT)
        .with_source(Mismatch);
    match error.details() {
        Some(details) => mismatch.with_details(details.clone()),
        None => mismatch,
    }
}

const FORMAT_KEY: &str = "/format/";

struct Registered(Arc<dyn Format>);

/// Registers an output format under its name; it replaces a built-in format of that name.
///
/// # Errors
/// `ALREADY_EXISTS` if a format of that name was registered before.
pub fn define_format(registry: &Registry, format: impl Format + 'static) -> Result<()> {
    let key = format!("{FORMAT_KEY}{}", format.name());
    if registry.value::<Registered>(&key).is_some() {
        return Err(Error::already_exists(format!(
            "a format is already registered as '{}'",
            format.name()
        )));
    }
    registry.set_value(key, Registered(Arc::new(format)));
    Ok(())
}

fn lookup_format(registry: &Registry, name: &str) -> Result<Arc<dyn Format>> {
    if let Some(registered) = registry.value::<Registered>(&format!("{FORMAT_KEY}{name}")) {
        return Ok(Arc::clone(&registered.0));
    }
    let builtin = builtin_formats().into_iter().find(|format| format.name() == name);
    builtin
        .ok_or_else(|| Error::invalid_argument(format!("there is no output format '{name}'")).with_public())
}
