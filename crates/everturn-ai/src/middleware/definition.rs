//! Middleware that is registered under a name.

use std::fmt;
use std::sync::Arc;

use everturn_core::{Error, HandlerResult, Registry, Result, Schema};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Middleware;
use crate::{JsonObject, MiddlewareDesc};

const KEY: &str = "/middleware/";

/// The prefix that Genkit's other runtimes put before the names of their middleware.
const PREFIX: &str = "genkit-middleware/";

type Factory = dyn Fn(Value, &Registry) -> HandlerResult<Arc<dyn Middleware>> + Send + Sync;

/// A middleware that can be used by name, with a typed configuration. Cloning is cheap.
#[derive(Clone)]
pub struct MiddlewareDefinition {
    name: String,
    description: Option<String>,
    config_schema: Schema,
    factory: Arc<Factory>,
}

impl MiddlewareDefinition {
    /// Creates a definition from `make`, which is called with the configuration for every generate call.
    ///
    /// For a reference without configuration, `make` gets the value that `{}` decodes to.
    pub fn new<C, M>(
        name: impl Into<String>,
        make: impl Fn(C, &Registry) -> HandlerResult<M> + Send + Sync + 'static,
    ) -> Self
    where
        C: DeserializeOwned + JsonSchema,
        M: Middleware,
    {
        let factory = move |config: Value, registry: &Registry| {
            let config = serde_json::from_value(config)?;
            Ok(Arc::new(make(config, registry)?) as Arc<dyn Middleware>)
        };
        Self {
            name: name.into(),
            description: None,
            config_schema: Schema::of::<C>(),
            factory: Arc::new(factory),
        }
    }

    /// Sets the description for people.
    pub fn description(self, description: impl Into<String>) -> Self {
        Self {
            description: Some(description.into()),
            ..self
        }
    }

    /// Returns the name under which the middleware is used.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the description of the middleware for tools and people.
    pub fn describe(&self) -> MiddlewareDesc {
        MiddlewareDesc {
            name: self.name.clone(),
            description: self.description.clone(),
            config_schema: Some(self.config_schema.as_json().clone()),
            metadata: None,
        }
    }

    pub(super) fn lookup(registry: &Registry, name: &str) -> Option<Arc<Self>> {
        registry.value(&format!("{KEY}{name}"))
    }

    pub(super) fn make(&self, config: Option<&Value>, registry: &Registry) -> Result<Arc<dyn Middleware>> {
        let config = config_or_empty(config);
        let made = self
            .config_schema
            .validate(&config)
            .and_then(|()| Ok((self.factory)(config, registry)?));
        made.map_err(|error| self.unusable(error))
    }

    /// Checks a configuration against the schema.
    pub(super) fn check(&self, config: Option<&Value>) -> Result<()> {
        let checked = self.config_schema.validate(&config_or_empty(config));
        checked.map_err(|error| self.unusable(error))
    }

    fn unusable(&self, error: Error) -> Error {
        Error::invalid_argument(format!("cannot make middleware '{}': {error}", self.name)).with_source(error)
    }
}

fn config_or_empty(config: Option<&Value>) -> Value {
    match config {
        None | Some(Value::Null) => Value::Object(JsonObject::new()),
        Some(config) => config.clone(),
    }
}

impl fmt::Debug for MiddlewareDefinition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("MiddlewareDefinition")
            .field(&self.name)
            .finish()
    }
}

/// Registers a middleware under its name, and under its prefixed name in Genkit's other runtimes.
///
/// # Errors
/// `ALREADY_EXISTS` if there is a middleware of that name.
pub fn define_middleware(registry: &Registry, definition: MiddlewareDefinition) -> Result<()> {
    let name = definition.name.clone();
    if MiddlewareDefinition::lookup(registry, &name).is_some() {
        return Err(Error::already_exists(format!(
            "a middleware is already registered as '{name}'"
        )));
    }
    let other = name
        .strip_prefix(PREFIX)
        .map_or_else(|| format!("{PREFIX}{name}"), str::to_owned);
    registry.set_value(format!("{KEY}{name}"), definition.clone());
    registry.set_value(format!("{KEY}{other}"), definition);
    Ok(())
}

/// Returns every registered middleware, each once, sorted by name.
pub fn middleware_descriptions(registry: &Registry) -> Vec<MiddlewareDesc> {
    let mut found: Vec<MiddlewareDesc> = registry
        .value_keys(KEY)
        .iter()
        .filter_map(|key| registry.value::<MiddlewareDefinition>(key))
        .map(|definition| definition.describe())
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found.dedup_by(|one, other| one.name == other.name);
    found
}
