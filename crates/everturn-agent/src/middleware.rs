//! Middleware that works with sessions and agents.
//!
//! | type | name | what it does |
//! |---|---|---|
//! | [`Delegation`] | `agents` | gives the model one tool per sub-agent |
//! | [`Artifacts`] | `artifacts` | lets the model list, read and write the session's artifacts |
//!
//! Both are values for `.use_middleware(..)` and, after [`register_agent_middleware`], names for `.prompt` files.

mod agent_ref;
mod artifacts;
mod delegation;
mod subagent;

use everturn_ai::{MiddlewareDefinition, define_middleware};
use everturn_core::{Registry, Result};

pub use self::agent_ref::AgentRef;
pub use self::artifacts::Artifacts;
pub use self::delegation::{ArtifactStrategy, Delegation};

/// Defines the middleware of this module under its names.
///
/// # Errors
/// `ALREADY_EXISTS` if there is a middleware of one of the names.
pub fn register_agent_middleware(registry: &Registry) -> Result<()> {
    let delegation = MiddlewareDefinition::new("agents", |config: Delegation, registry| {
        Ok(config.start(registry)?)
    })
    .description("Gives the model one tool for each sub-agent.");
    let artifacts = MiddlewareDefinition::new("artifacts", |config: Artifacts, _| Ok(config))
        .description("Lets the model list, read and write the artifacts of the session.");
    define_middleware(registry, delegation)?;
    define_middleware(registry, artifacts)
}
