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

use std::collections::BTreeSet;
use std::sync::Arc;

use everturn_ai::prompt::used_middleware;
use everturn_ai::{MiddlewareDefinition, define_middleware};
use everturn_core::{ActionType, DynAction, Registry, Result};
use serde_json::Value;

pub use self::agent_ref::AgentRef;
pub use self::artifacts::Artifacts;
pub use self::delegation::{ArtifactStrategy, Delegation};

/// Returns the names of the registered agents that are internal: others delegate to them, and they are not
/// [public](crate::AgentBuilder::public). Servers offer all other agents to clients.
///
/// An agent counts as delegated to if the prompt or the settings of another agent have a [`Delegation`] to it. What a function of
/// your own delegates to while it runs is not known here.
pub fn internal_agents(registry: &Registry) -> BTreeSet<String> {
    let is_public = |action: &Arc<dyn DynAction>| {
        let own = action.descriptor().metadata.get("everturn");
        own.and_then(|own| own.get("public")) == Some(&Value::Bool(true))
    };
    let used = used_middleware(registry);
    let delegates: BTreeSet<String> = used.iter().flat_map(Delegation::delegates_of).collect();
    let agents = registry.of_type(&ActionType::AGENT).into_iter();
    agents
        .filter(|(name, action)| delegates.contains(name) && !is_public(action))
        .map(|(name, _)| name)
        .collect()
}

/// Defines the middleware of this module under its names.
///
/// # Errors
/// `ALREADY_EXISTS` if there is a middleware of one of the names.
pub fn register_agent_middleware(registry: &Registry) -> Result<()> {
    let delegation = MiddlewareDefinition::new(Delegation::NAME, |config: Delegation, registry| {
        Ok(config.start(registry)?)
    })
    .description("Gives the model one tool for each sub-agent.");
    let artifacts = MiddlewareDefinition::new("artifacts", |config: Artifacts, _| Ok(config))
        .description("Lets the model list, read and write the artifacts of the session.");
    define_middleware(registry, delegation)?;
    define_middleware(registry, artifacts)
}
