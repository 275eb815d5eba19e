//! The source of a generate call's middleware, which creates a bundle for each call, and middleware that is
//! registered under a name.

use std::fmt;
use std::sync::Arc;

use everturn_core::{Error, HandlerResult, Registry, Result, Schema};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Middleware;
use crate::{JsonObject, MiddlewareDesc, MiddlewareRef, reason};

type Factory = dyn Fn(&Registry) -> HandlerResult<Arc<dyn Middleware>> + Send + Sync;

/// Creates a middleware for each generate call. Cloning is cheap.
#[derive(Clone)]
pub struct MiddlewareSource(Kind);

/// An agent that a middleware delegates to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegate {
    /// The name of the agent.
    pub name: String,
    /// Whether the agent is looked up by its name when it gets a task, so that it must be registered by then.
    pub is_looked_up: bool,
}

#[derive(Clone)]
enum Kind {
    Named(MiddlewareRef),
    Made {
        make: Arc<Factory>,
        /// The agents that it delegates to.
        delegates: Arc<[Delegate]>,
    },
}

impl MiddlewareSource {
    /// Creates the source of the middleware that is registered under a name.
    pub fn named(reference: impl Into<MiddlewareRef>) -> Self {
        Self(Kind::Named(reference.into()))
    }

    /// Creates a source from `make`, which is called for each generate call.
    pub fn factory(
        make: impl Fn(&Registry) -> HandlerResult<Arc<dyn Middleware>> + Send + Sync + 'static,
    ) -> Self {
        Self(Kind::Made {
            make: Arc::new(make),
            delegates: Arc::default(),
        })
    }

    /// Declares the registered agents that the middleware delegates to. Servers do not offer them unless they
    /// are public.
    pub fn delegating_to(self, agents: impl IntoIterator<Item = Delegate>) -> Self {
        Self(match self.0 {
            Kind::Made { make, .. } => Kind::Made {
                make,
                delegates: agents.into_iter().collect(),
            },
            named @ Kind::Named(_) => named,
        })
    }

    /// Returns the agents that the middleware [declares](Self::delegating_to).
    pub fn delegates(&self) -> &[Delegate] {
        match &self.0 {
            Kind::Made { delegates, .. } => delegates,
            Kind::Named(_) => &[],
        }
    }

    /// Returns the name and configuration if the middleware is used by name.
    pub fn reference(&self) -> Option<&MiddlewareRef> {
        match &self.0 {
            Kind::Named(reference) => Some(reference),
            Kind::Made { .. } => None,
        }
    }

    /// Creates a bundle.
    pub(crate) fn make(&self, registry: &Registry) -> Result<Arc<dyn Middleware>> {
        match &self.0 {
            Kind::Made { make, .. } => Ok(make(registry)?),
            Kind::Named(reference) => {
                let definition = named(registry, reference)?;
                definition.make(reference.config.as_ref(), registry)
            }
        }
    }

    /// Checks that the middleware is registered and accepts its configuration, without creating one.
    pub(crate) fn check(&self, registry: &Registry) -> Result<()> {
        match &self.0 {
            Kind::Made { .. } => Ok(()),
            Kind::Named(reference) => named(registry, reference)?.check(reference.config.as_ref()),
        }
    }
}

fn named(registry: &Registry, reference: &MiddlewareRef) -> Result<Arc<MiddlewareDefinition>> {
    MiddlewareDefinition::lookup(registry, &reference.name).ok_or_else(|| {
        Error::not_found(format!("no middleware '{}' is registered", reference.name))
            .with_reason(reason::MIDDLEWARE_NOT_FOUND)
    })
}

impl fmt::Debug for MiddlewareSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Named(reference) => reference.fmt(formatter),
            Kind::Made { .. } => formatter.write_str("MiddlewareSource(made)"),
        }
    }
}

/// A type that can be used as middleware: a value, cloned for each generate call, or the name of a registered
/// one.
pub trait IntoMiddleware {
    /// Converts the value into the source of the middleware.
    fn into_middleware(self) -> MiddlewareSource;
}

impl<M: Middleware + Clone> IntoMiddleware for M {
    fn into_middleware(self) -> MiddlewareSource {
        MiddlewareSource::factory(move |_| Ok(Arc::new(self.clone())))
    }
}

impl IntoMiddleware for MiddlewareSource {
    fn into_middleware(self) -> MiddlewareSource {
        self
    }
}

impl IntoMiddleware for MiddlewareRef {
    fn into_middleware(self) -> MiddlewareSource {
        MiddlewareSource::named(self)
    }
}

impl IntoMiddleware for &str {
    fn into_middleware(self) -> MiddlewareSource {
        MiddlewareRef::new(self).into_middleware()
    }
}

impl IntoMiddleware for String {
    fn into_middleware(self) -> MiddlewareSource {
        MiddlewareRef::new(self).into_middleware()
    }
}

const KEY: &str = "/middleware/";

/// The prefix that Genkit's other runtimes put before the names of their middleware.
const PREFIX: &str = "genkit-middleware/";

type ConfiguredFactory = dyn Fn(Value, &Registry) -> HandlerResult<Arc<dyn Middleware>> + Send + Sync;

/// A middleware that can be used by name, with a typed configuration. Cloning is cheap.
#[derive(Clone)]
pub struct MiddlewareDefinition {
    name: String,
    description: Option<String>,
    config_schema: Schema,
    factory: Arc<ConfiguredFactory>,
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

everturn_core::opaque_debug!(MiddlewareDefinition, name);

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
