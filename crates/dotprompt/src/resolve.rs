//! Resolution of the names in a prompt to their definitions.
//!
//! Resolvers are plain functions, not futures: prompts are compiled and rendered synchronously, and resolvers
//! read local data (a registry, a table, a folder). A caller with remote definitions fetches them first.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Error, ErrorKind, Helper, Limits, Metadata, ParsedPrompt, PromptRef, PromptStore, StoreErrorKind,
    picoschema,
};

/// The error of a resolver; any standard error.
pub type ResolveError = Box<dyn std::error::Error + Send + Sync>;

/// Looks up a name: `Ok(None)` if the name is unknown, an error if the look-up itself failed.
pub(crate) type Resolver<T> = Arc<dyn Fn(&str) -> Result<Option<T>, ResolveError> + Send + Sync>;

/// A tool that a prompt may name in its `tools`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// The name by which prompts and the model call it.
    pub name: String,
    /// The description of the tool, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its input.
    pub input_schema: Value,
    /// The JSON Schema of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

impl ToolDefinition {
    /// Creates a tool without a description.
    pub fn new(name: impl Into<String>, input_schema: Value) -> Self {
        Self {
            name: name.into(),
            description: None,
            input_schema,
            output_schema: None,
        }
    }

    setters! {
        /// Sets the description.
        pub fn description(mut self, description: impl Into<String>) {
            self.description = Some(description.into());
        }

        /// Sets the JSON Schema of the output.
        pub fn output_schema(mut self, schema: Value) { self.output_schema = Some(schema) }
    }
}

/// All definitions by name, and the defaults.
#[derive(Clone, Default)]
pub(crate) struct Definitions {
    pub(crate) helpers: HashMap<String, Arc<dyn Helper>>,
    pub(crate) partials: HashMap<String, Arc<str>>,
    pub(crate) partial_resolver: Option<Resolver<String>>,
    pub(crate) schemas: HashMap<String, Value>,
    pub(crate) schema_resolver: Option<Resolver<Value>>,
    pub(crate) tools: HashMap<String, ToolDefinition>,
    pub(crate) tool_resolver: Option<Resolver<ToolDefinition>>,
    pub(crate) store: Option<Arc<dyn PromptStore>>,
    pub(crate) default_model: Option<String>,
    pub(crate) model_configs: HashMap<String, Value>,
    pub(crate) limits: Limits,
}

/// The source of a partial and the name under which its errors are reported.
pub(crate) struct PartialSource {
    pub(crate) label: Arc<str>,
    pub(crate) source: Arc<str>,
}

impl Definitions {
    /// Looks for a partial among the defined ones, then calls the resolver, then the store.
    pub(crate) fn partial(&self, name: &str) -> Result<Option<PartialSource>, Error> {
        let label = || Arc::from(format!("partial '{name}'"));
        if let Some(source) = self.partials.get(name) {
            return Ok(Some(PartialSource {
                label: label(),
                source: source.clone(),
            }));
        }
        if let Some(resolver) = &self.partial_resolver
            && let Some(source) = ask(resolver, "partial", name)?
        {
            return Ok(Some(PartialSource {
                label: label(),
                source: source.into(),
            }));
        }
        let Some(store) = &self.store else { return Ok(None) };
        match store.load_partial(&PromptRef::new(name)) {
            Ok(stored) => Ok(Some(PartialSource {
                label: stored.file.map_or_else(label, Arc::from),
                source: stored.source.into(),
            })),
            // A name that is not valid in the store may be that of an inline partial, so it is not an error
            // here.
            Err(error)
                if matches!(
                    error.kind(),
                    StoreErrorKind::NotFound | StoreErrorKind::InvalidName
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Merges the model's default configuration, the frontmatter and the additional metadata, and resolves
    /// the tools and schemas that the result names.
    pub(crate) fn resolve(&self, parsed: &ParsedPrompt, additional: &Metadata) -> Result<Metadata, Error> {
        let own = parsed.metadata();
        let model = additional
            .model()
            .or_else(|| own.model())
            .or(self.default_model.as_deref());
        let mut metadata = Metadata::new();
        if let Some(config) = model.and_then(|model| self.model_configs.get(model)) {
            metadata = metadata.with("config", config.clone());
        }
        metadata.overlay(own);
        if !additional.as_map().is_empty() {
            metadata.overlay(additional);
        }
        self.resolve_tools(&mut metadata, parsed)?;
        self.resolve_schema(&mut metadata, "input", parsed)?;
        self.resolve_schema(&mut metadata, "output", parsed)?;
        Ok(metadata)
    }

    fn resolve_tools(&self, metadata: &mut Metadata, parsed: &ParsedPrompt) -> Result<(), Error> {
        let listed = match metadata.get("tools") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Array(listed)) => listed.clone(),
            Some(other) => {
                let message = format!("'tools' must be a list of names, found {other}");
                let at = || parsed.locate(&["tools".to_owned()]);
                return Err(Error::new(ErrorKind::Metadata(message)).or_at(at));
            }
        };
        let mut definitions = metadata.tool_definitions().to_vec();
        let mut unknown = Vec::new();
        for entry in listed {
            match entry.as_str().map(|name| self.tool(name)).transpose() {
                Ok(Some(Some(tool))) => definitions.push(tool),
                Ok(_) => unknown.push(entry),
                Err(error) => {
                    let name = entry.as_str().unwrap_or_default().to_owned();
                    return Err(error.or_at(|| parsed.locate(&["tools".to_owned(), name])));
                }
            }
        }
        let map = metadata.as_map_mut();
        map.insert("tools".to_owned(), Value::Array(unknown));
        map.insert("toolDefs".to_owned(), Value::Array(definitions));
        Ok(())
    }

    /// Resolves a tool. If there is a resolver, it must resolve the tool; without one, an undefined name
    /// stays a name.
    fn tool(&self, name: &str) -> Result<Option<Value>, Error> {
        let tool = match (self.tools.get(name), &self.tool_resolver) {
            (Some(tool), _) => tool.clone(),
            (None, None) => return Ok(None),
            (None, Some(resolver)) => {
                let unknown = || Error::new(ErrorKind::UnknownTool(name.to_owned()));
                ask(resolver, "tool", name)?.ok_or_else(unknown)?
            }
        };
        let value = serde_json::to_value(tool);
        value
            .map(Some)
            .map_err(|error| Error::new(ErrorKind::Metadata(error.to_string())))
    }

    fn resolve_schema(
        &self,
        metadata: &mut Metadata,
        side: &str,
        parsed: &ParsedPrompt,
    ) -> Result<(), Error> {
        let section = metadata.as_map_mut().get_mut(side).and_then(Value::as_object_mut);
        let Some(schema) = section.and_then(|section| section.get_mut("schema")) else {
            return Ok(());
        };
        let mut named = |name: &str| self.schema(name);
        let expanded = picoschema::expand_located(schema, &mut named).map_err(|(error, path)| {
            let full: Vec<_> = [side.to_owned(), "schema".to_owned()]
                .into_iter()
                .chain(path)
                .collect();
            error.or_at(|| parsed.locate(&full))
        })?;
        if let Some(expanded) = expanded {
            *schema = expanded;
        }
        Ok(())
    }

    fn schema(&self, name: &str) -> Result<Option<Value>, Error> {
        match (self.schemas.get(name), &self.schema_resolver) {
            (Some(schema), _) => Ok(Some(schema.clone())),
            (None, Some(resolver)) => ask(resolver, "schema", name),
            (None, None) => Ok(None),
        }
    }
}

fn ask<T>(resolver: &Resolver<T>, what: &str, name: &str) -> Result<Option<T>, Error> {
    resolver(name).map_err(|error| {
        Error::new(ErrorKind::Resolver(format!(
            "the {what} '{name}' could not be resolved: {error}"
        )))
    })
}
