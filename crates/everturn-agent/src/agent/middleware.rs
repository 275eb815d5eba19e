//! Middleware that works with sessions and agents.
//!
//! | type | name | what it does |
//! |---|---|---|
//! | [`Delegation`] | `agents` | gives the model one tool per sub-agent |
//! | [`Artifacts`] | `artifacts` | lets the model list, read and write the session's artifacts |
//!
//! Both are values for `.use_middleware(..)` and, after [`register_agent_middleware`], names for `.prompt`
//! files.

mod agent_ref;
mod artifacts;
mod delegation;
mod subagent;

use std::collections::BTreeSet;
use std::sync::Arc;

use everturn_ai::prompt::{Mistakes, used_middleware};
use everturn_ai::{Delegate, MiddlewareDefinition, define_middleware};
use everturn_core::{ActionType, DynAction, Error, Registry, Result};
use serde_json::Value;

pub use self::agent_ref::AgentRef;
pub use self::artifacts::Artifacts;
pub use self::delegation::{ArtifactStrategy, Delegation};

/// Returns the names of the registered agents that are internal: others delegate to them, and they are not
/// [public](crate::AgentBuilder::public). Servers offer all other agents to clients.
///
/// An agent counts as delegated to if the prompt or the settings of another agent have a [`Delegation`] to
/// it. Delegation by custom code at run time is not visible here.
pub fn internal_agents(registry: &Registry) -> BTreeSet<String> {
    let is_public = |action: &Arc<dyn DynAction>| {
        let own = action.descriptor().metadata.get("everturn");
        own.and_then(|own| own.get("public")) == Some(&Value::Bool(true))
    };
    let used = used_middleware(registry);
    let delegates = used
        .iter()
        .flat_map(|(_, middleware)| Delegation::delegates_of(middleware));
    let delegates: BTreeSet<String> = delegates.map(|delegate| delegate.name).collect();
    let agents = registry.of_type(&ActionType::AGENT).into_iter();
    agents
        .filter(|(name, action)| delegates.contains(name) && !is_public(action))
        .map(|(name, _)| name)
        .collect()
}

/// Checks that the agents that others delegate to by name are registered.
pub async fn check_delegates(registry: &Registry) -> Mistakes {
    let mut mistakes = Mistakes::default();
    for (owner, middleware) in used_middleware(registry) {
        let delegates = Delegation::delegates_of(&middleware).into_iter();
        for Delegate { name, .. } in delegates.filter(|delegate| delegate.is_looked_up) {
            // A plugin whose service does not answer is not reported as a mistake.
            if let Ok(None) = registry.lookup(&ActionType::AGENT.key(&name)).await {
                let message = format!("{owner}: it delegates to the agent '{name}', which is not defined");
                mistakes.add(Error::not_found(message));
            }
        }
    }
    mistakes
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
