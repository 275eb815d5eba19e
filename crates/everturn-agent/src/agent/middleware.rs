//! Middleware that works with sessions and agents.
//!
//! | type | name | what it does |
//! |---|---|---|
//! | [`Delegation`] | `agents` | gives the model one tool per sub-agent |
//! | [`Artifacts`] | `artifacts` | lets the model list, read and write the session's artifacts |
//!
//! Both are values for `.use_middleware(..)` and, after [`register_agent_middleware`], names for `.prompt`
//! files.

mod artifacts;
mod delegation;
mod subagent;

use std::collections::BTreeSet;
use std::sync::Arc;

use everturn_ai::prompt::{Mistakes, used_middleware};
use everturn_ai::{Delegate, MiddlewareDefinition, define_middleware};
use everturn_core::{ActionType, DynAction, Error, Registry, Result};
use serde_json::Value;

pub use self::artifacts::Artifacts;
pub use self::delegation::{AgentRef, ArtifactStrategy, Delegation};

/// Returns the names of the registered agents that are internal: they are defined as
/// [internal](crate::AgentBuilder::internal), or others delegate to them and they are not
/// [public](crate::AgentBuilder::public). Servers offer all other agents to clients.
///
/// An agent counts as delegated to if the prompt or the settings of another agent have a [`Delegation`] to
/// it. Code that delegates at run time is refused unless the agent is public or internal.
pub fn internal_agents(registry: &Registry) -> BTreeSet<String> {
    let used = used_middleware(registry);
    let delegates = used
        .iter()
        .flat_map(|(_, middleware)| Delegation::delegates_of(middleware));
    let delegates: BTreeSet<String> = delegates.map(|delegate| delegate.name).collect();
    let agents = registry.of_type(&ActionType::AGENT).into_iter();
    agents
        .filter(|(name, action)| {
            let is_delegate = delegates.contains(name) && !is_declared(action, "public");
            is_delegate || is_declared(action, "internal")
        })
        .map(|(name, _)| name)
        .collect()
}

fn is_declared(action: &Arc<dyn DynAction>, visibility: &str) -> bool {
    let own = action.descriptor().metadata.get("everturn");
    own.and_then(|own| own.get(visibility)) == Some(&Value::Bool(true))
}

/// Refuses to delegate to an agent that servers offer to clients although it was not declared public: nothing
/// but the call that is about to begin shows that it is a sub-agent.
///
/// # Errors
/// `FAILED_PRECONDITION` that names the agent.
fn check_visibility(registry: &Registry, delegate: &str) -> Result<()> {
    match registry.get(&ActionType::AGENT.key(delegate)) {
        Some(action) if !is_declared(&action, "public") && !internal_agents(registry).contains(delegate) => {
            Err(Error::failed_precondition(format!(
                "code delegates to the agent '{delegate}', which clients can call, too: define it with \
                 `AgentBuilder::internal`, or with `AgentBuilder::public` if they may"
            )))
        }
        _ => Ok(()),
    }
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
