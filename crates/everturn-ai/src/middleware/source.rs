//! The source of a generate call's middleware, which creates a bundle for each call.

use std::fmt;
use std::sync::Arc;

use everturn_core::{Error, HandlerResult, Registry, Result};

use super::{Middleware, MiddlewareDefinition};
use crate::{MiddlewareRef, reason};

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
