//! Recovering the runs of all agents of a registry.

use std::sync::{Arc, Weak};

use everturn_core::Registry;
use futures::future::BoxFuture;

use super::Recovery;
use crate::CustomState;
use crate::invocation::Definition;

/// The prefix of the registry keys under which the agents' recoverers are kept.
const RECOVERERS: &str = "agent-recovery/";

/// An agent's recovery, without the type of its state.
trait Recover: Send + Sync {
    fn recover(self: Arc<Self>) -> BoxFuture<'static, Recovery>;
}

impl<S: CustomState> Recover for Definition<S> {
    fn recover(self: Arc<Self>) -> BoxFuture<'static, Recovery> {
        Box::pin(async move { Definition::recover(&self).await })
    }
}

/// A weak handle on a registered agent; the agent's action keeps it alive.
struct Recoverer(Weak<dyn Recover>);

/// Lets [`recover_all`] find an agent.
pub(crate) fn register<S: CustomState>(registry: &Registry, definition: &Arc<Definition<S>>) {
    let key = format!("{RECOVERERS}{}", definition.name);
    let definition: Arc<dyn Recover> = Arc::clone(definition) as _;
    registry.set_value(key, Recoverer(Arc::downgrade(&definition)));
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
    for polled in futures::future::join_all(agents.map(Recover::recover)).await {
        recovery.merge(polled);
    }
    recovery
}
