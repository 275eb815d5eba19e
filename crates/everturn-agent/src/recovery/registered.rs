//! Recovering the runs of all agents of a registry.

use std::sync::{Arc, Weak};

use everturn_core::Registry;

use super::Recovery;
use crate::invocation::Definition;

/// The prefix of the registry keys under which the agents' recoverers are kept.
const RECOVERERS: &str = "agent-recovery/";

/// A weak handle on a registered agent; the agent's action keeps it alive.
struct Recoverer(Weak<Definition>);

/// Lets [`recover_all`] find an agent.
pub(crate) fn register(registry: &Registry, definition: &Arc<Definition>) {
    let key = format!("{RECOVERERS}{}", definition.name);
    registry.set_value(key, Recoverer(Arc::downgrade(definition)));
}

/// Polls once for lost runs of every registered agent, and takes them over.
///
/// An agent whose poll fails does not keep the others from theirs: see [`Recovery::failures`].
pub async fn recover_all(registry: &Registry) -> Recovery {
    let agents = registry
        .value_keys(RECOVERERS)
        .into_iter()
        .filter_map(|key| registry.value::<Recoverer>(&key)?.0.upgrade());
    let mut recovery = Recovery::default();
    for polled in futures::future::join_all(agents.map(|agent| async move { agent.recover().await })).await {
        recovery.merge(polled);
    }
    recovery
}
